/* SPDX-License-Identifier: Apache-2.0
 *
 * powercut: a preloaded library that makes a process lose power. Writes to regular files below a
 * folder are remembered until an fsync or fdatasync of the file covers them. When the time is up,
 * no call gets through any more, every write that was not covered is undone (newest first), a
 * random share of them is done again (a disk may have kept any of them), and the process dies.
 * Names (creation, rename, removal) count as durable at once, as with a journalling file system's
 * default for RocksDB's order of calls. Files that are mapped for writing are not covered.
 *
 *   SLUICE_POWERCUT_DIR   folder (absolute); unset: the library does nothing
 *   SLUICE_POWERCUT_MS    time from the start of the process
 *   SLUICE_POWERCUT_AFTER a path: the time counts from when this file is there
 *   SLUICE_POWERCUT_KEEP  percent of the undone writes that are done again (0)
 *   SLUICE_POWERCUT_SEED  of the choice
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_FDS 4096

/* One write or truncation that is not durable yet. */
typedef struct undo {
    struct undo *older;
    uint64_t number;
    ino_t inode;
    int fd; /* our own descriptor of the file */
    bool truncation;
    off_t offset; /* of a write; new size of a truncation */
    size_t len;
    off_t size_before;
    size_t before_len; /* bytes of the old content that were there */
    char *before;
    char *after;
} undo;

typedef struct watched {
    bool known;
    bool tracked;
    ino_t inode;
    int own_fd;
} watched;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static watched files[MAX_FDS];
static undo *newest;
static uint64_t last_number;
static const char *folder; /* set before there are threads */

/* ---- the calls themselves ---- */

static ssize_t do_pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    return syscall(SYS_pwrite64, fd, bytes, len, offset);
}

static ssize_t do_pread(int fd, void *bytes, size_t len, off_t offset)
{
    return syscall(SYS_pread64, fd, bytes, len, offset);
}

/* ---- which files ---- */

static bool is_below_folder(const char *path)
{
    size_t len = strlen(folder);
    if (strncmp(path, folder, len) != 0 || path[len] != '/')
        return false;
    // RocksDB's own text log and the lock files say nothing about data.
    const char *name = strrchr(path, '/') + 1;
    return strncmp(name, "LOG", 3) != 0 && strstr(name, "lock") == NULL &&
           strcmp(name, "LOCK") != 0;
}

/* With lock. NULL: not a file to be watched. */
static watched *watch(int fd)
{
    if (folder == NULL || fd < 0 || fd >= MAX_FDS)
        return NULL;
    watched *file = &files[fd];
    if (!file->known) {
        struct stat st;
        char link[64], path[1024];
        file->known = true;
        file->tracked = false;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(link, path, sizeof path - 1);
        if (len > 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
            path[len] = '\0';
            file->tracked = is_below_folder(path);
            file->inode = st.st_ino;
        }
        if (file->tracked)
            file->own_fd = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDWR | O_CLOEXEC, 0);
    }
    return file->tracked ? file : NULL;
}

/* ---- remembering; with lock ---- */

static undo *new_undo(const watched *file)
{
    struct stat st;
    undo *un = calloc(1, sizeof *un);
    if (un == NULL || fstat(file->own_fd, &st) != 0)
        abort();
    un->number = ++last_number;
    un->inode = file->inode;
    un->fd = file->own_fd;
    un->size_before = st.st_size;
    un->older = newest;
    newest = un;
    return un;
}

static void save_before(undo *un, off_t offset, size_t len)
{
    if (offset >= un->size_before || len == 0)
        return;
    un->before = malloc(len);
    ssize_t got = do_pread(un->fd, un->before, len, offset);
    un->before_len = got > 0 ? (size_t)got : 0;
}

static void remember_write(const watched *file, const void *bytes, size_t len, off_t offset)
{
    undo *un = new_undo(file);
    un->offset = offset;
    un->len = len;
    un->after = malloc(len + 1);
    memcpy(un->after, bytes, len);
    save_before(un, offset, len);
}

static void remember_truncation(const watched *file, off_t size)
{
    undo *un = new_undo(file);
    un->truncation = true;
    un->offset = size;
    if (un->size_before > size)
        save_before(un, size, (size_t)(un->size_before - size));
}

static void forget(ino_t inode, uint64_t up_to)
{
    undo **at = &newest;
    while (*at != NULL) {
        undo *un = *at;
        if (un->inode != inode || un->number > up_to) {
            at = &un->older;
            continue;
        }
        *at = un->older;
        free(un->before);
        free(un->after);
        free(un);
    }
}

/* ---- the cut ---- */

static void undo_one(const undo *un)
{
    off_t offset = un->offset;
    if (un->truncation && syscall(SYS_ftruncate, un->fd, un->size_before) != 0)
        abort();
    if (un->before_len > 0 && do_pwrite(un->fd, un->before, un->before_len, offset) < 0)
        abort();
    if (!un->truncation && syscall(SYS_ftruncate, un->fd, un->size_before) != 0)
        abort();
}

static void redo_one(const undo *un)
{
    if (un->truncation ? syscall(SYS_ftruncate, un->fd, un->offset) != 0
                       : do_pwrite(un->fd, un->after, un->len, un->offset) < 0)
        abort();
}

static long number_of(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 0 : strtol(text, NULL, 10);
}

/* Never gives the lock back: no write of any thread gets through any more. */
static void cut_power(void)
{
    pthread_mutex_lock(&lock);
    size_t count = 0, kept = 0, at = 0;
    for (undo *un = newest; un != NULL; un = un->older)
        count++;
    undo **list = calloc(count + 1, sizeof *list);
    for (undo *un = newest; un != NULL; un = un->older)
        list[at++] = un;
    for (at = 0; at < count; at++)
        undo_one(list[at]);
    srandom((unsigned)number_of("SLUICE_POWERCUT_SEED"));
    long keep = number_of("SLUICE_POWERCUT_KEEP");
    for (at = count; at-- > 0;) {
        if (random() % 100 >= keep)
            continue;
        redo_one(list[at]);
        kept++;
    }
    dprintf(2, "powercut: %zu writes were not durable, %zu of them kept\n", count, kept);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void sleep_ms(long ms)
{
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&span, &span) != 0 && errno == EINTR)
        ;
}

static void *timer(void *arg)
{
    (void)arg;
    const char *after = getenv("SLUICE_POWERCUT_AFTER");
    while (after != NULL && access(after, F_OK) != 0)
        sleep_ms(1);
    sleep_ms(number_of("SLUICE_POWERCUT_MS"));
    cut_power();
    return NULL;
}

__attribute__((constructor)) static void start(void)
{
    const char *dir = getenv("SLUICE_POWERCUT_DIR");
    pthread_t thread;
    if (dir == NULL || number_of("SLUICE_POWERCUT_MS") == 0)
        return;
    folder = strdup(dir);
    if (pthread_create(&thread, NULL, timer, NULL) != 0)
        abort();
    pthread_detach(thread);
}

/* ---- what the process calls instead ---- */

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset);
ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset)
{
    if (folder == NULL)
        return do_pwrite(fd, bytes, len, offset);
    pthread_mutex_lock(&lock);
    const watched *file = watch(fd);
    if (file != NULL)
        remember_write(file, bytes, len, offset);
    ssize_t done = do_pwrite(fd, bytes, len, offset);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    return pwrite64(fd, bytes, len, offset);
}

static off_t place_of(int fd)
{
    struct stat st;
    if ((fcntl(fd, F_GETFL) & O_APPEND) != 0 && fstat(fd, &st) == 0)
        return st.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    if (folder == NULL)
        return syscall(SYS_write, fd, bytes, len);
    pthread_mutex_lock(&lock);
    const watched *file = watch(fd);
    // What is not watched may block (a pipe): not with the lock.
    if (file == NULL) {
        pthread_mutex_unlock(&lock);
        return syscall(SYS_write, fd, bytes, len);
    }
    remember_write(file, bytes, len, place_of(fd));
    ssize_t done = syscall(SYS_write, fd, bytes, len);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t offset);
ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t offset)
{
    ssize_t sum = 0;
    for (int i = 0; i < count; i++) {
        ssize_t done = pwrite64(fd, pieces[i].iov_base, pieces[i].iov_len, offset + sum);
        if (done < 0)
            return sum > 0 ? sum : -1;
        sum += done;
    }
    return sum;
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset)
{
    return pwritev64(fd, pieces, count, offset);
}

int ftruncate64(int fd, off64_t size);
int ftruncate64(int fd, off64_t size)
{
    if (folder == NULL)
        return (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    const watched *file = watch(fd);
    if (file != NULL)
        remember_truncation(file, size);
    int rc = (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_unlock(&lock);
    return rc;
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

/* Only what was written before the call is durable, and only after it returned. */
static int sync_file(long call, int fd)
{
    pthread_mutex_lock(&lock);
    const watched *file = watch(fd);
    ino_t inode = file == NULL ? 0 : file->inode;
    uint64_t up_to = last_number;
    pthread_mutex_unlock(&lock);
    int rc = (int)syscall(call, fd);
    if (rc == 0 && inode != 0) {
        pthread_mutex_lock(&lock);
        forget(inode, up_to);
        pthread_mutex_unlock(&lock);
    }
    return rc;
}

int fsync(int fd)
{
    return sync_file(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return sync_file(SYS_fdatasync, fd);
}

int close(int fd)
{
    if (folder != NULL && fd >= 0 && fd < MAX_FDS) {
        pthread_mutex_lock(&lock);
        // Our own descriptor stays open: undone writes may need it.
        files[fd].known = false;
        pthread_mutex_unlock(&lock);
    }
    return (int)syscall(SYS_close, fd);
}
