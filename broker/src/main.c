/* SPDX-License-Identifier: Apache-2.0
 *
 * main of sluice-broker: arguments, signals, exit code. 0: stopped as asked; 1: could not start;
 * 2: a mistake on the command line.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/conf.h"
#include "base/logger.h"
#include "broker.h"
#include "broker_conf.h"
#include "stats/broker_stats.h"

#define OUTPUT_MAX (16u << 20)

static const char USAGE[] =
    "usage: sluice-broker [options]\n"
    "\n"
    "Runs the Sluice MQTT broker in the foreground; SIGTERM or Ctrl-C stops it in good order.\n"
    "\n"
    "  --config FILE           settings (YAML); environment variables override it\n"
    "  --check-config          check the settings and exit\n"
    "  --print-config          print the effective settings, secrets masked, and exit\n"
    "  --print-reference KIND  print what the documents are made from and exit: config (the table\n"
    "                          of settings), metrics (the table of counters), template (a "
    "commented\n"
    "                          settings file)\n"
    "  --version               print the version and exit\n"
    "  --help                  print this text and exit\n"
    "\n"
    "All settings, with their environment variables: docs/configuration-broker.md. The most used:\n"
    "  SLUICE_DATA_DIR, LISTENER_TCP_BIND_ADDRESS, LISTENER_TCP_BIND_PORT, HTTP_BIND_PORT\n";

static const char CONFIG_HEAD[] =
    "# Configuration of sluice-broker\n\n"
    "Made by `sluice-broker --print-reference config`; do not edit. A setting is taken from its "
    "environment variable, else from the file given by `--config`, else it has its default.\n\n";
static const char METRICS_HEAD[] =
    "# Metrics of sluice-broker\n\n"
    "Made by `sluice-broker --print-reference metrics`; do not edit. `GET /metrics` on the admin "
    "port gives all of them as Prometheus text.\n\n";

typedef struct arguments {
    const char *config;
    const char *reference;
    bool check, print;
} arguments;

static int print_reference(const char *kind)
{
    sl_buf out;
    sl_buf_init(&out, OUTPUT_MAX);
    sl_err err = SL_OK;
    if (strcmp(kind, "config") == 0) {
        err = sl_buf_append_str(&out, CONFIG_HEAD);
        if (err == SL_OK)
            err = sl_conf_write_reference(SL_BROKER_CONF_ROWS, SL_BROKER_CONF_COUNT, &out);
    } else if (strcmp(kind, "metrics") == 0) {
        err = sl_buf_append_str(&out, METRICS_HEAD);
        if (err == SL_OK)
            err = sl_stats_write_reference(SL_BROKER_STAT_ROWS, SL_BS_COUNT, &out);
    } else if (strcmp(kind, "template") == 0) {
        err = sl_conf_write_template(
            SL_BROKER_CONF_ROWS, SL_BROKER_CONF_COUNT,
            "Settings of sluice-broker. This file differs from the defaults in one thing: it binds "
            "loopback only, where clients need no credentials. To serve other machines, set "
            "listener.tcp.bind_address and decide about security.anonymous.",
            SL_BROKER_CONF_SHIPPED, &out);
    } else {
        fprintf(stderr,
                "sluice-broker: --print-reference knows config, metrics, template, not %s\n", kind);
        return 2;
    }
    sl_slice text = sl_buf_peek(&out);
    fwrite(text.ptr, 1, text.len, stdout);
    sl_buf_fini(&out);
    return err == SL_OK ? 0 : 1;
}

/* True: go on. False: *code says how to end. */
static bool parse(int argc, char **argv, arguments *args, int *code)
{
    static const struct option OPTIONS[] = {
        {"config", required_argument, NULL, 'c'},
        {"check-config", no_argument, NULL, 'k'},
        {"print-config", no_argument, NULL, 'p'},
        {"print-reference", required_argument, NULL, 'r'},
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    for (int opt; (opt = getopt_long(argc, argv, "c:h", OPTIONS, NULL)) != -1;) {
        switch (opt) {
        case 'c':
            args->config = optarg;
            break;
        case 'k':
            args->check = true;
            break;
        case 'p':
            args->print = true;
            break;
        case 'r':
            *code = print_reference(optarg);
            return false;
        case 'v':
            puts("sluice-broker " SL_VERSION);
            *code = 0;
            return false;
        case 'h':
            fputs(USAGE, stdout);
            *code = 0;
            return false;
        default: // getopt has named the argument
            fputs("try sluice-broker --help\n", stderr);
            *code = 2;
            return false;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "sluice-broker: unexpected argument '%s'\ntry sluice-broker --help\n",
                argv[optind]);
        *code = 2;
        return false;
    }
    return true;
}

static void raise_open_files(void)
{
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
        return;
    rl.rlim_cur = rl.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &rl);
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < 4096)
        sl_warn(SL_C_BROKER, "FEW-OPEN-FILES", SL_U("limit", rl.rlim_cur),
                SL_S("do", "raise it with ulimit -n before the start"));
}

static sl_err load(const arguments *args, sl_conf *cf, char **why)
{
    sl_err err = SL_OK;
    if (args->config != NULL)
        err = sl_conf_load_file(cf, args->config, why);
    if (err == SL_OK)
        err = sl_conf_load_env(cf, why);
    return err;
}

static sl_err set_logging(const sl_conf *cf, char **why)
{
    const char *level = sl_conf_str(cf, "logging.level"), *text = NULL;
    sl_logger_set_level(strcmp(level, "error") == 0  ? SL_LEVEL_ERROR
                        : strcmp(level, "warn") == 0 ? SL_LEVEL_WARN
                                                     : SL_LEVEL_INFO);
    sl_err err = sl_logger_set_trace(sl_conf_str(cf, "logging.trace"), &text);
    if (err != SL_OK)
        *why = sl_strdup(text);
    return err;
}

static int print_config(const sl_conf *cf)
{
    sl_buf out;
    sl_buf_init(&out, OUTPUT_MAX);
    sl_err err = sl_conf_print(cf, &out);
    sl_slice text = sl_buf_peek(&out);
    fwrite(text.ptr, 1, text.len, stdout);
    sl_buf_fini(&out);
    return err == SL_OK ? 0 : 1;
}

static int serve(const sl_conf *cf)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    // Blocked before any thread is made: signals are taken here, and nowhere else.
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    raise_open_files();
    sl_broker *br = NULL;
    char *why = NULL;
    sl_err err = sl_broker_start(cf, &br, &why);
    if (err != SL_OK) {
        sl_error(SL_C_BROKER, "BROKER-NOT-STARTED", SL_E(err),
                 SL_S("why", why != NULL ? why : sl_err_text(err)));
        sl_free(why);
        return 1;
    }
    int sig = 0;
    do {
        if (sigwait(&set, &sig) != 0)
            break;
        if (sig == SIGHUP)
            sl_info(SL_C_BROKER, "NOTHING-TO-RELOAD");
    } while (sig == SIGHUP);
    sl_broker_stop(&br);
    return 0;
}

int main(int argc, char **argv)
{
    arguments args = {0};
    int code = 0;
    if (!parse(argc, argv, &args, &code))
        return code;
    sl_conf *cf = sl_conf_new(SL_BROKER_CONF_ROWS, SL_BROKER_CONF_COUNT);
    char *why = NULL;
    sl_err err = load(&args, cf, &why);
    if (err == SL_OK)
        err = set_logging(cf, &why);
    if (err != SL_OK) {
        fprintf(stderr, "sluice-broker: %s\n", why != NULL ? why : sl_err_text(err));
        sl_free(why);
        code = 1;
    } else if (args.print) {
        code = print_config(cf);
    } else if (args.check) {
        puts("the settings are valid");
    } else {
        code = serve(cf);
    }
    sl_conf_free(&cf);
    return code;
}
