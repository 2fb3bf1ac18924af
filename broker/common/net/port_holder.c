/* SPDX-License-Identifier: Apache-2.0
 *
 * port_holder: /proc/net/tcp[6] gives the socket's inode, /proc/PID/fd the process that has it.
 */
#include "net/port_holder.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_LISTEN 0x0A
#define PATH_BYTES   320

/* The inode of a listening socket on port, or 0. */
static uint64_t inode_in(const char *table, uint16_t port)
{
    FILE *file = fopen(table, "re");
    if (file == NULL)
        return 0;
    char line[512];
    uint64_t found = 0;
    while (found == 0 && fgets(line, sizeof(line), file) != NULL) {
        unsigned local_port = 0;
        unsigned state = 0;
        uint64_t inode = 0;
        // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %" SCNu64,
                   &local_port, &state, &inode) == 3 &&
            local_port == port && state == STATE_LISTEN)
            found = inode;
    }
    (void)fclose(file);
    return found;
}

static bool process_has(const char *pid, const char *socket_name)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    DIR *dir = opendir(path);
    if (dir == NULL)
        return false; // another user's process
    bool has = false;
    for (struct dirent *de; !has && (de = readdir(dir)) != NULL;) {
        char target[64];
        ssize_t n = readlinkat(dirfd(dir), de->d_name, target, sizeof(target) - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        has = strcmp(target, socket_name) == 0;
    }
    (void)closedir(dir);
    return has;
}

static void describe(const char *pid, char *out, size_t out_bytes)
{
    char path[PATH_BYTES];
    char name[64] = "?";
    (void)snprintf(path, sizeof(path), "/proc/%s/comm", pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(name, sizeof(name), file) != NULL)
            name[strcspn(name, "\n")] = '\0';
        (void)fclose(file);
    }
    (void)snprintf(out, out_bytes, "process %s (%s)", pid, name);
}

sl_err sl_port_holder_find(uint16_t port, char *out, size_t out_bytes)
{
    uint64_t inode = inode_in("/proc/net/tcp", port);
    if (inode == 0)
        inode = inode_in("/proc/net/tcp6", port);
    if (inode == 0)
        return SL_ENOTFOUND;
    char socket_name[64];
    (void)snprintf(socket_name, sizeof(socket_name), "socket:[%" PRIu64 "]", inode);
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return SL_ENOTFOUND;
    sl_err err = SL_ENOTFOUND;
    for (struct dirent *de; err != SL_OK && (de = readdir(proc)) != NULL;) {
        if (!isdigit((unsigned char)de->d_name[0]) || !process_has(de->d_name, socket_name))
            continue;
        describe(de->d_name, out, out_bytes);
        err = SL_OK;
    }
    (void)closedir(proc);
    return err;
}
