# SPDX-License-Identifier: Apache-2.0
"""Certificates for the system tests, made by openssl in the test's folder."""
import subprocess


def _openssl(folder, *words):
    done = subprocess.run(["openssl", *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, f"openssl {words}: {done.stderr}"


class Authority:
    """A CA; its certificate is the file ca."""

    def __init__(self, folder, name="ca"):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name = folder, name
        self.ca, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        _openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2,
                 "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.ca)

    def issue(self, name, san="IP:127.0.0.1", days=2):
        """(certificate, key) for a server or a client; san: for whom it is."""
        crt, key, csr, ext = (self.folder / f"{name}.{ending}" for ending in ("crt", "key", "csr", "ext"))
        ext.write_text(f"subjectAltName={san}\n")
        _openssl(self.folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                 f"/CN={name}", "-keyout", key, "-out", csr)
        _openssl(self.folder, "x509", "-req", "-in", csr, "-CA", self.ca, "-CAkey", self.key, "-CAcreateserial",
                 "-days", days, "-extfile", ext, "-out", crt)
        key.chmod(0o644)  # a server of another user reads it
        return crt, key
