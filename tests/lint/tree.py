# SPDX-License-Identifier: Apache-2.0
"""The files of a source tree, as the lint checks see them: what git tracks or would track."""
import pathlib
import re
import subprocess

SKIPPED_FOLDERS = {".git", "build", "data", "__pycache__", "node_modules"}


class Tree:
    """root: the checkout. paths: its files, relative, sorted."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.paths = self._tracked() or self._walked()

    def _tracked(self):
        command = ["git", "-C", str(self.root), "-c", f"safe.directory={self.root}", "ls-files", "-co",
                   "--exclude-standard"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return []
        return sorted(p for p in done.stdout.splitlines() if (self.root / p).is_file())

    def _walked(self):
        """For an exported tree without git."""
        found = []
        for path in self.root.rglob("*"):
            relative = path.relative_to(self.root)
            if path.is_file() and not SKIPPED_FOLDERS.intersection(relative.parts):
                found.append(str(relative))
        return sorted(found)

    def read(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def matching(self, *suffixes):
        return [p for p in self.paths if p.endswith(suffixes)]

    def sources(self):
        return self.matching(".c", ".h")

    def scripts(self):
        """Shell scripts, by suffix or by first line."""
        return self._programs(".sh", r"(ba)?sh")

    def python(self):
        """Python files, by suffix or by first line."""
        return self._programs(".py", r"python3")

    def _programs(self, suffix, interpreter):
        found = []
        for path in self.paths:
            if path.endswith(suffix):
                found.append(path)
            elif "." not in pathlib.PurePosixPath(path).name:
                if re.match(rf"#!.*\b{interpreter}\b", self.read(path).split("\n", 1)[0]):
                    found.append(path)
        return found


def blank_comments(text, strings=True):
    """C text with comments (and, if asked, string contents) replaced by blanks; lines stay lines."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        if match.group(0)[0] in "\"'" and not strings:
            return match.group(0)
        return re.sub(r"[^\n]", " ", match.group(0))

    return token.sub(blank, text)
