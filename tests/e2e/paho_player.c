/* SPDX-License-Identifier: Apache-2.0
 *
 * paho_player: plays a stream of readings (sensor_stream.py) with paho.mqtt.c, a client that is not
 * ours. Reads lines from standard input, publishes them in order with a window of messages in
 * flight, reconnects when the broker goes away and lets paho resend what was not acknowledged.
 * Ends with status 0 when every message with QoS 1 and 2 is acknowledged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <MQTTClient.h>

#define WINDOW          64
#define WAIT_MS         20000
#define CONNECT_TRIES   600
#define CONNECT_WAIT_US 100000

typedef struct reading {
    int qos;
    char *topic;
    unsigned char *payload;
    int size;
} reading;

static void die(const char *what, int code)
{
    fprintf(stderr, "paho_player: %s (%d)\n", what, code);
    exit(1);
}

static void connect_again(MQTTClient client)
{
    MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer;
    options.cleansession = 0; // paho resends what is in flight only in a session that goes on
    options.keepAliveInterval = 30;
    options.maxInflightMessages = WINDOW;
    options.connectTimeout = 2;
    int code = 0;
    for (int i = 0; i < CONNECT_TRIES; i++) {
        code = MQTTClient_connect(client, &options);
        if (code == MQTTCLIENT_SUCCESS)
            return;
        usleep(CONNECT_WAIT_US);
    }
    die("cannot connect", code);
}

/* In place: "%20" back to a blank; the topic is one word of the line. */
static void unescape(char *text)
{
    char *found;
    while ((found = strstr(text, "%20")) != NULL) {
        *found = ' ';
        memmove(found + 1, found + 3, strlen(found + 3) + 1);
    }
}

static int hex_digit(char digit)
{
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

/* Parses one line in place; false at a line that is none. */
static int parse(char *line, reading *rd)
{
    char *topic = strchr(line, ' ');
    char *hex = topic ? strchr(topic + 1, ' ') : NULL;
    if (!hex)
        return 0;
    *topic = *hex = 0;
    rd->qos = line[0] - '0';
    rd->topic = topic + 1;
    unescape(rd->topic);
    hex++;
    hex[strcspn(hex, "\n")] = 0;
    rd->size = *hex == '-' ? 0 : (int)(strlen(hex) / 2);
    rd->payload = (unsigned char *)hex; // decoded over itself: the bytes are half as many
    for (int i = 0; i < rd->size; i++)
        rd->payload[i] = (unsigned char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return rd->qos >= 0 && rd->qos <= 2;
}

static MQTTClient_deliveryToken publish(MQTTClient client, const reading *rd)
{
    MQTTClient_deliveryToken token = 0;
    for (;;) {
        int code = MQTTClient_publish(client, rd->topic, rd->size, rd->payload, rd->qos, 0, &token);
        if (code == MQTTCLIENT_SUCCESS)
            return token;
        if (code == MQTTCLIENT_MAX_MESSAGES_INFLIGHT)
            MQTTClient_yield();
        else if (!MQTTClient_isConnected(client))
            connect_again(client);
        else
            die("cannot publish", code);
        if (rd->qos == 0 && code != MQTTCLIENT_MAX_MESSAGES_INFLIGHT)
            return 0; // lost with the connection, as QoS 0 may be
    }
}

/* Waits until the message of this token is acknowledged, over as many connections as that takes. */
static void await_token(MQTTClient client, MQTTClient_deliveryToken token)
{
    int waits = 0;
    while (MQTTClient_waitForCompletion(client, token, WAIT_MS) != MQTTCLIENT_SUCCESS) {
        if (!MQTTClient_isConnected(client))
            connect_again(client);
        else if (++waits == 3)
            die("a message is not acknowledged", token);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: paho_player PORT CLIENT_ID < STREAM\n");
        return 2;
    }
    char address[64];
    MQTTClient client;
    MQTTClient_deliveryToken window[WINDOW];
    unsigned sent = 0, done = 0;
    char *line = NULL;
    size_t size = 0;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%s", argv[1]);
    if (MQTTClient_create(&client, address, argv[2], MQTTCLIENT_PERSISTENCE_NONE, NULL))
        die("cannot make a client", 0);
    connect_again(client);
    while (getline(&line, &size, stdin) > 0) {
        reading rd;
        if (!parse(line, &rd))
            die("bad line", (int)sent);
        if (sent - done == WINDOW)
            await_token(client, window[done++ % WINDOW]);
        MQTTClient_deliveryToken token = publish(client, &rd);
        if (rd.qos > 0)
            window[sent++ % WINDOW] = token;
    }
    while (done < sent)
        await_token(client, window[done++ % WINDOW]);
    MQTTClient_disconnect(client, 1000);
    MQTTClient_destroy(&client);
    free(line);
    return 0;
}
