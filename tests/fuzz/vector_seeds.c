/* SPDX-License-Identifier: Apache-2.0
 *
 * vector_seeds OUT FILE...: writes each packet of the vector files as a seed of the packet entries:
 * a byte that says version and side (packet_fuzz.c), then the packet. Packets over 4 KiB are left
 * out, they only slow the mutation down.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/alloc.h"

#define MAX_FILE (16u << 20)
#define MAX_SEED 4096u

static char *read_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    if (in == NULL)
        return NULL;
    char *text = sl_alloc(MAX_FILE);
    size_t len = fread(text, 1, MAX_FILE - 1, in);
    text[len] = 0;
    fclose(in);
    return text;
}

static int write_seed(const char *folder, unsigned number, const cJSON *item)
{
    const char *hex = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "hex"));
    const char *side = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "side"));
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(item, "version");
    if (hex == NULL || side == NULL || !cJSON_IsNumber(version))
        return 1;
    if (strlen(hex) / 2 > MAX_SEED)
        return 0;
    char path[1024];
    snprintf(path, sizeof(path), "%s/v%05u", folder, number);
    FILE *out = fopen(path, "wb");
    if (out == NULL)
        return 1;
    fputc((version->valueint - 3) | (strcmp(side, "client") == 0 ? 4 : 0), out);
    for (const char *p = hex; p[0] != 0 && p[1] != 0; p += 2) {
        char pair[3] = {p[0], p[1], 0};
        fputc((int)strtol(pair, NULL, 16), out);
    }
    return fclose(out) != 0;
}

int main(int argc, char **argv)
{
    unsigned number = 0;
    int bad = argc < 3;
    for (int i = 2; i < argc && !bad; i++) {
        char *text = read_file(argv[i]);
        cJSON *root = cJSON_Parse(text == NULL ? "" : text);
        const cJSON *item;
        bad = root == NULL;
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, "vectors"))
        {
            bad |= write_seed(argv[1], number++, item);
        }
        cJSON_Delete(root);
        sl_free(text);
    }
    if (bad || number == 0)
        fprintf(stderr,
                "usage: vector_seeds FOLDER FILE.json... (or one of them cannot be used)\n");
    return bad || number == 0;
}
