/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_broker: where the broker is and how it is spoken to: the URL of mqtt-client, and the TLS
 * context made of its files.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "conf_int.h"
#include "rho.h"
#include "why.h"

/* The text behind the scheme, or NULL. */
static const char *behind_scheme(const char *url, bool *is_tls)
{
    static const struct {
        const char *text;
        bool is_tls;
    } schemes[] = {{"tcp://", false}, {"ssl://", true}, {"mqtts://", true}};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t len = strlen(schemes[i].text);
        if (strncmp(url, schemes[i].text, len) != 0)
            continue;
        *is_tls = *is_tls || schemes[i].is_tls;
        return url + len;
    }
    return NULL;
}

sl_err sl_conf_parse_broker_url(const char *url, bool tls, sl_conf_broker *out)
{
    *out = (sl_conf_broker){.is_tls = tls};
    const char *from = behind_scheme(url, &out->is_tls);
    if (from == NULL)
        return SL_EINVAL;
    const char *end;
    size_t len;
    if (*from == '[') { // IPv6
        end = strchr(++from, ']');
        if (end == NULL)
            return SL_EINVAL;
        len = (size_t)(end - from);
        end++;
    } else {
        len = strcspn(from, ":/");
        end = from + len;
    }
    int64_t number = out->is_tls ? 8883 : 1883;
    if (*end == ':') {
        char digits[8];
        size_t count = strspn(end + 1, "0123456789");
        if (count == 0 || count >= sizeof digits)
            return SL_EINVAL;
        memcpy(digits, end + 1, count);
        digits[count] = '\0';
        if (!sl_conf_parse_int(digits, &number) || number < 1 || number > 65535)
            return SL_EINVAL;
        end += 1 + count;
    }
    if (*end == '/')
        end++;
    if (*end != '\0' || len == 0 || memchr(from, '@', len) != NULL)
        return SL_EINVAL;
    out->host = sl_strndup(from, len);
    out->port = (uint16_t)number;
    return SL_OK;
}

sl_err sl_conf_broker_of(const sl_gateway_conf *cf, sl_conf_broker *out)
{
    return sl_conf_parse_broker_url(sl_gateway_conf_str(cf, "mqtt-client/broker-url"),
                                    sl_gateway_conf_bool(cf, "mqtt-client/tls"), out);
}

sl_err sl_conf_broker_tls(const sl_gateway_conf *cf, sl_tls_ctx **out, char **why)
{
    const sl_tls_settings settings = {
        .role = SL_TLS_CLIENT,
        .ca_file = sl_gateway_conf_str(cf, "mqtt-client/tls-trust-store"),
        .cert_file = sl_gateway_conf_str(cf, "mqtt-client/tls-key-store"),
        .key_password = sl_gateway_conf_str(cf, "mqtt-client/tls-key-store-password"),
    };
    return sl_tls_ctx_new(&settings, out, why);
}

static sl_err refuse_url(const char *url, const char *file, char **why)
{
    static const char *const later[] = {"ws://", "wss://"};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        if (strncmp(url, later[i], strlen(later[i])) == 0)
            return sl_why(why, SL_EINVAL,
                          "%s: mqtt-client/broker-url: %s is not available in this version, only "
                          "tcp://, ssl:// and mqtts:// are",
                          file, later[i]);
    }
    // an address with a password in it is such a mistake
    sl_buf shown;
    sl_buf_init(&shown, strlen(url) + 16);
    if (sl_rho_write_url(&shown, url) != SL_OK)
        sl_buf_clear(&shown);
    sl_slice text = sl_buf_peek(&shown);
    sl_err err = sl_why(why, SL_EINVAL,
                        "%s: mqtt-client/broker-url: \"%.*s\" is not tcp://host:port or "
                        "ssl://host:port",
                        file, (int)text.len, (const char *)text.ptr);
    sl_buf_fini(&shown);
    return err;
}

static sl_err check_tls(const sl_gateway_conf *cf, const sl_conf_broker *broker, const char *file,
                        char **why)
{
    static const char *const keys[] = {"mqtt-client/tls-trust-store", "mqtt-client/tls-key-store"};
    for (size_t i = 0; !broker->is_tls && i < sizeof keys / sizeof keys[0]; i++) {
        if (sl_gateway_conf_str(cf, keys[i]) != NULL) // who names it does not expect plain text
            return sl_why(why, SL_EINVAL,
                          "%s: %s is set, but the connection is without TLS: set mqtt-client/tls "
                          "to true or begin mqtt-client/broker-url with ssl://",
                          file, keys[i]);
    }
    if (!broker->is_tls || !sl_gateway_conf_bool(cf, "mqtt-client/enabled"))
        return SL_OK;
    if (!sl_tls_is_server_name(broker->host))
        return sl_why(why, SL_EINVAL,
                      "%s: mqtt-client/broker-url: \"%s\" cannot be the name of a certificate",
                      file, broker->host);
    sl_tls_ctx *ctx = NULL;
    char *reason = NULL;
    sl_err err = sl_conf_broker_tls(cf, &ctx, &reason);
    if (err != SL_OK)
        err = sl_why(why, err, "%s: mqtt-client/tls: %s", file, reason);
    sl_free(reason);
    sl_tls_ctx_unref(&ctx);
    return err;
}

sl_err sl_conf_check_broker(const sl_gateway_conf *cf, const char *file, char **why)
{
    sl_conf_broker broker;
    if (sl_conf_broker_of(cf, &broker) != SL_OK)
        return refuse_url(sl_gateway_conf_str(cf, "mqtt-client/broker-url"), file, why);
    sl_err err = check_tls(cf, &broker, file, why);
    sl_free(broker.host);
    return err;
}
