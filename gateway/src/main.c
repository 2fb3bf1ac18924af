/* SPDX-License-Identifier: Apache-2.0
 *
 * main: arguments, signals, exit codes of sluice-gateway.
 *   0 ended as told, 1 could not start or a command failed, 2 wrong use of the command line.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "figures.h"
#include "gateway.h"
#include "gateway_conf.h"
#include "http/auth.h"

#define HASH_ITERATIONS 100000
#define MAX_PASSWORD    1024

enum { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef enum command {
    RUN,
    CHECK_CONFIG,
    PRINT_CONFIG,
    PRINT_REFERENCE,
    REPLAY,
    HASH_PASSWORD,
    VERSION,
    HELP
} command;

typedef struct arguments {
    command what;
    const char *reference; /* PRINT_REFERENCE: config, template, metrics */
    sl_gateway_conf_sources sources;
    const char *data_dir;
} arguments;

static const char usage[] =
    "usage: sluice-gateway [--config FILE] [-o|--rho FILE] [command]\n"
    "\n"
    "  --config FILE          configuration; without it the built-in defaults (or "
    "RESTHEART_CONF_FILE)\n"
    "  -o, --rho FILE         overrides: .yml .json .jsonc .conf (or RHO_FILE)\n"
    "\n"
    "commands, instead of running:\n"
    "  --check-config         reads and checks the configuration\n"
    "  --print-config         prints the configuration in force, secrets masked\n"
    "  --print-reference WHAT prints a document: config, template or metrics\n"
    "  --replay-dead-letter   puts the dead-letter file's documents into the store\n"
    "  --hash-password        reads a password from standard input, prints its salted hash\n"
    "  --version, --help\n"
    "\n"
    "environment: RHO (overrides, \"/path->value; ...\"), SLUICE_DATA_DIR (default ./data),\n"
    "SLUICE_TRACE (log components)\n"
    "signals: SIGTERM and SIGINT stop, SIGHUP reads users and rights again\n";

static const char *env(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : otherwise;
}

/* The value of an option that needs one; NULL after a message. */
static const char *option_value(int argc, char **argv, int *at)
{
    if (*at + 1 < argc)
        return argv[++*at];
    fprintf(stderr, "sluice-gateway: %s needs a value\n", argv[*at]);
    return NULL;
}

static bool parse_command(const char *word, command *out)
{
    static const struct {
        const char *word;
        command what;
    } words[] = {
        {"--check-config", CHECK_CONFIG},
        {"--print-config", PRINT_CONFIG},
        {"-c", PRINT_CONFIG},
        {"--replay-dead-letter", REPLAY},
        {"--hash-password", HASH_PASSWORD},
        {"--version", VERSION},
        {"-v", VERSION},
        {"--help", HELP},
        {"-h", HELP},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].word, word) == 0) {
            *out = words[i].what;
            return true;
        }
    }
    return false;
}

static bool parse_arguments(int argc, char **argv, arguments *out)
{
    *out = (arguments){.what = RUN, .data_dir = env("SLUICE_DATA_DIR", "./data")};
    out->sources = (sl_gateway_conf_sources){.file = env("RESTHEART_CONF_FILE", NULL),
                                             .rho_file = env("RHO_FILE", NULL),
                                             .rho = env("RHO", NULL)};
    for (int i = 1; i < argc; i++) {
        const char **value = NULL;
        if (strcmp(argv[i], "--config") == 0)
            value = &out->sources.file;
        else if (strcmp(argv[i], "--rho") == 0 || strcmp(argv[i], "-o") == 0)
            value = &out->sources.rho_file;
        else if (strcmp(argv[i], "--print-reference") == 0) {
            out->what = PRINT_REFERENCE;
            value = &out->reference;
        }
        if (value != NULL) {
            *value = option_value(argc, argv, &i);
            if (*value == NULL)
                return false;
        } else if (!parse_command(argv[i], &out->what)) {
            if (argv[i][0] == '-') {
                fprintf(stderr, "sluice-gateway: unknown option %s (see --help)\n", argv[i]);
                return false;
            }
            out->sources.file = argv[i]; // as RESTHeart: the file alone
        }
    }
    return true;
}

static int failed(char *why, const char *event)
{
    sl_error(SL_C_GATEWAY, event, SL_S("why", why != NULL ? why : "no memory for the reason"));
    sl_free(why);
    return EXIT_FAILED;
}

/* Writes a text to standard output. */
static int print(sl_buf *text, sl_err err)
{
    sl_slice all = sl_buf_peek(text);
    if (err == SL_OK && fwrite(all.ptr, 1, all.len, stdout) == all.len && fflush(stdout) == 0) {
        sl_buf_fini(text);
        return EXIT_FINE;
    }
    fprintf(stderr, "sluice-gateway: the text could not be written\n");
    sl_buf_fini(text);
    return EXIT_FAILED;
}

static int print_reference(const char *what)
{
    sl_buf text;
    sl_buf_init(&text, 4u << 20);
    if (strcmp(what, "config") == 0)
        return print(&text, sl_gateway_conf_write_reference(&text));
    if (strcmp(what, "template") == 0)
        return print(&text, sl_gateway_conf_write_template(&text));
    if (strcmp(what, "metrics") == 0)
        return print(&text, sl_figures_write_reference(&text));
    fprintf(stderr, "sluice-gateway: --print-reference knows config, template and metrics\n");
    return EXIT_USAGE;
}

static int hash_password(void)
{
    char password[MAX_PASSWORD + 2];
    size_t len = fread(password, 1, sizeof password, stdin);
    if (len > 0 && password[len - 1] == '\n')
        len--;
    if (len == 0 || len > MAX_PASSWORD) {
        fprintf(stderr,
                "sluice-gateway: a password of 1 to %d bytes is expected on standard input\n",
                MAX_PASSWORD);
        return EXIT_FAILED;
    }
    sl_buf text;
    sl_buf_init(&text, 4096);
    sl_err err = sl_auth_hash_password(sl_slice_of(password, len), HASH_ITERATIONS, &text);
    explicit_bzero(password, sizeof password);
    if (err == SL_OK)
        err = sl_buf_append_u8(&text, '\n');
    return print(&text, err);
}

static void reload(sl_gateway *gw, const sl_gateway_conf_sources *sources)
{
    sl_gateway_conf *fresh = NULL;
    char *why = NULL;
    sl_err err = sl_gateway_conf_load(sources, &fresh, &why);
    if (err == SL_OK)
        err = sl_gateway_reload(gw, fresh, &why);
    if (err == SL_OK)
        sl_info(SL_C_GATEWAY, "GATEWAY-RELOADED", SL_S("what", "users, permissions, topic grants"));
    else
        (void)failed(why, "GATEWAY-RELOAD-FAILED");
    sl_gateway_conf_free(&fresh);
}

static sigset_t watched_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

/* A descriptor per stream: the usual soft limit of 1024 is less than mqtt-sse/max-connections. */
static void raise_descriptor_limit(void)
{
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) != 0 || rl.rlim_cur >= rl.rlim_max)
        return;
    rl.rlim_cur = rl.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &rl) != 0)
        sl_warn(SL_C_GATEWAY, "GATEWAY-DESCRIPTORS", SL_E(sl_err_from_errno(errno)));
}

static int run(sl_gateway_conf **cf, const arguments *args)
{
    raise_descriptor_limit();
    // blocked before any thread exists, so that only this thread takes them
    sigset_t set = watched_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    sl_gateway *gw = NULL;
    char *why = NULL;
    if (sl_gateway_start(cf, args->data_dir, &gw, &why) != SL_OK)
        return failed(why, "GATEWAY-START-FAILED");
    for (;;) {
        int sig = sigwaitinfo(&set, NULL);
        if (sig == SIGHUP)
            reload(gw, &args->sources);
        else if (sig == SIGTERM || sig == SIGINT)
            break;
    }
    sl_info(SL_C_GATEWAY, "GATEWAY-STOPPING");
    sl_gateway_stop(&gw);
    sl_info(SL_C_GATEWAY, "GATEWAY-STOPPED");
    return EXIT_FINE;
}

static void set_log_level(const sl_gateway_conf *cf)
{
    const char *level = sl_gateway_conf_str(cf, "logging/log-level");
    if (strcmp(level, "ERROR") == 0)
        sl_logger_set_level(SL_LEVEL_ERROR);
    else if (strcmp(level, "WARN") == 0)
        sl_logger_set_level(SL_LEVEL_WARN);
}

static int with_config(const arguments *args)
{
    sl_gateway_conf *cf = NULL;
    char *why = NULL;
    if (sl_gateway_conf_load(&args->sources, &cf, &why) != SL_OK)
        return failed(why, "GATEWAY-CONFIG-REFUSED");
    int status = EXIT_FINE;
    if (args->what == PRINT_CONFIG) {
        sl_buf text;
        sl_buf_init(&text, 4u << 20);
        status = print(&text, sl_gateway_conf_print(cf, &text));
    } else if (sl_gateway_check(cf, &why) != SL_OK) {
        status = failed(why, "GATEWAY-CONFIG-REFUSED");
    } else if (args->what == REPLAY) {
        if (sl_gateway_replay(cf, args->data_dir, &why) != SL_OK)
            status = failed(why, "GATEWAY-REPLAY-FAILED");
    } else if (args->what == CHECK_CONFIG) {
        sl_info(SL_C_CONF, "CONF-FINE");
    } else {
        set_log_level(cf);
        status = run(&cf, args);
    }
    sl_gateway_conf_free(&cf);
    return status;
}

int main(int argc, char **argv)
{
    arguments args;
    if (!parse_arguments(argc, argv, &args))
        return EXIT_USAGE;
    const char *trace = getenv("SLUICE_TRACE"), *bad = NULL;
    if (trace != NULL && sl_logger_set_trace(trace, &bad) != SL_OK) {
        fprintf(stderr, "sluice-gateway: SLUICE_TRACE: unknown component %s\n", bad);
        return EXIT_USAGE;
    }
    switch (args.what) {
    case HELP:
        return fputs(usage, stdout) < 0 ? EXIT_FAILED : EXIT_FINE;
    case VERSION:
        return printf("sluice-gateway %s\n", SL_VERSION) < 0 ? EXIT_FAILED : EXIT_FINE;
    case HASH_PASSWORD:
        return hash_password();
    case PRINT_REFERENCE:
        return print_reference(args.reference);
    default:
        return with_config(&args);
    }
}
