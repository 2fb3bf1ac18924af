/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_lua: see inbox_redis_lua.h. A body begins with the 20 bytes of inbox_codec.h:
 * version, kind, QoS, flags, expiry, time.
 */
#include "store/inbox_redis_lua.h"

#include <pthread.h>

/* clang-format off */

/* Deletes bodies and set, in steps that Lua's stack holds; and what somebody else put in its place. */
#define LUA_EMPTY \
    "local function empty()\n" \
    "  local kind = redis.call('TYPE', KEYS[1]).ok\n" \
    "  if kind ~= 'zset' and kind ~= 'none' then redis.call('UNLINK', KEYS[1]) end\n" \
    "  repeat\n" \
    "    local old = redis.call('ZRANGE', KEYS[1], 0, 999)\n" \
    "    if #old > 0 then\n" \
    "      redis.call('UNLINK', unpack(old))\n" \
    "      redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #old - 1)\n" \
    "    end\n" \
    "  until #old == 0\n" \
    "end\n"

/* Row numbers go on: no number of the box is used twice. */
#define LUA_RENEW LUA_EMPTY \
    "local function renew(generation)\n" \
    "  local row = redis.call('HGET', KEYS[2], 'row')\n" \
    "  empty()\n" \
    "  redis.call('DEL', KEYS[2])\n" \
    "  redis.call('HSET', KEYS[2], 'generation', generation, 'row', row or '0')\n" \
    "end\n"

static const char lua_add[] = LUA_RENEW
    "local box = redis.call('HMGET', KEYS[2], 'generation', 'row')\n"
    "local last = tonumber(box[2] or '0')\n"
    "if box[1] and ARGV[1] < box[1] then return {-1, 0, ''} end\n"
    "if box[1] and ARGV[1] > box[1] then renew(ARGV[1]) end\n"
    "local limit, count = tonumber(ARGV[2]), (#ARGV - 3) / 4\n"
    // Which rows are new: a source counts once, and only onwards.
    "local known, fresh, keep, kept = {}, {}, {}, 0\n"
    "for i = 1, count do\n"
    "  local field, offset = ARGV[4 * i], ARGV[4 * i + 1]\n"
    "  keep[i] = true\n"
    "  if field ~= '' then\n"
    "    if known[field] == nil then\n"
    "      local value = redis.call('HGET', KEYS[2], field)\n"
    "      known[field] = value and string.sub(value, 1, 20) or ''\n"
    "    end\n"
    "    if offset <= known[field] then\n"
    "      keep[i] = false\n"
    "    else\n"
    "      known[field] = offset\n"
    "      fresh[field] = true\n"
    "    end\n"
    "  end\n"
    "  if keep[i] then kept = kept + 1 end\n"
    "end\n"
    "if kept == 0 then return {count, 0, string.rep('0,', count)} end\n"
    // Room: the oldest go, and the first of these when they are more than the box holds.
    "local skip = math.max(kept - limit, 0)\n"
    "local evicted = skip\n"
    "local over = redis.call('ZCARD', KEYS[1]) + kept - skip - limit\n"
    "while over > 0 do\n"
    "  local old = redis.call('ZRANGE', KEYS[1], 0, math.min(over, 1000) - 1)\n"
    "  redis.call('UNLINK', unpack(old))\n"
    "  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #old - 1)\n"
    "  evicted = evicted + #old\n"
    "  over = over - #old\n"
    "end\n"
    // A packet id comes back after 65535 rows: one that is still in the box is passed over.
    "local low = tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or math.huge)\n"
    "local rows = {}\n"
    "for i = 1, count do\n"
    "  rows[i] = '0'\n"
    "  if keep[i] and skip > 0 then\n"
    "    skip = skip - 1\n"
    "  elseif keep[i] then\n"
    "    local key\n"
    "    repeat\n"
    "      last = last + 1\n"
    "      key = KEYS[1] .. '_' .. ((last - 1) % 65535 + 1)\n"
    "    until not (last - low >= 65535 and redis.call('ZSCORE', KEYS[1], key))\n"
    "    redis.call('SET', key, ARGV[4 * i + 3], 'PX', ARGV[4 * i + 2])\n"
    "    redis.call('ZADD', KEYS[1], last, key)\n"
    "    rows[i] = string.format('%.0f', last)\n"
    "  end\n"
    "end\n"
    "local row = string.format('%.0f', last)\n"
    "redis.call('HSET', KEYS[2], 'generation', ARGV[1], 'row', row)\n"
    "redis.call('SET', KEYS[3], (last - 1) % 65535 + 1)\n"
    "for field in pairs(fresh) do\n"
    "  redis.call('HSET', KEYS[2], field, known[field] .. ':' .. row)\n"
    "end\n"
    // Too many sources: those go that were quiet for longest.
    "local most = tonumber(ARGV[3])\n"
    "local many = redis.call('HLEN', KEYS[2]) - 2 - most\n"
    "if many > 0 then\n"
    "  local all, quiet = redis.call('HGETALL', KEYS[2]), {}\n"
    "  for i = 1, #all, 2 do\n"
    "    if string.sub(all[i], 1, 2) == 's:' and not fresh[all[i]] then\n"
    "      quiet[#quiet + 1] = {all[i], tonumber(string.sub(all[i + 1], 22))}\n"
    "    end\n"
    "  end\n"
    "  table.sort(quiet, function(a, b) return a[2] < b[2] end)\n"
    "  for i = 1, math.min(many + math.floor(most / 8), #quiet) do\n"
    "    redis.call('HDEL', KEYS[2], quiet[i][1])\n"
    "  end\n"
    "end\n"
    "return {count - kept, evicted, table.concat(rows, ',')}\n";

static const char lua_read[] = LUA_RENEW
    "local generation = redis.call('HGET', KEYS[2], 'generation')\n"
    "if generation and ARGV[1] < generation then return -1 end\n"
    "if generation and ARGV[1] > generation then renew(ARGV[1]) end\n"
    "local after, most, room = '(' .. ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])\n"
    "local now = tonumber(ARGV[5])\n"
    "local function is_sound(body)\n"
    "  if not body or #body < 20 or string.byte(body, 1) ~= 1 then return false end\n"
    "  local kind, qos = string.byte(body, 2, 3)\n"
    "  if kind == 1 then return #body == 20 end\n"
    "  return kind == 0 and #body > 20 and (qos == 1 or qos == 2)\n"
    "end\n"
    "local function expiry(body)\n"
    "  local value = 0\n"
    "  for i = 5, 12 do value = value * 256 + string.byte(body, i) end\n"
    "  return value\n"
    "end\n"
    "local out, count, bytes, expired, repaired, more = {}, 0, 0, 0, 0, 0\n"
    "repeat\n"
    "  local page = redis.call('ZRANGEBYSCORE', KEYS[1], after, '+inf', 'WITHSCORES', 'LIMIT', 0, 200)\n"
    "  local gone = {}\n"
    "  for i = 1, #page, 2 do\n"
    "    local body = redis.call('GET', page[i])\n"
    "    if not is_sound(body) then\n"
    "      gone[#gone + 1] = page[i]\n"
    "      repaired = repaired + 1\n"
    "    elseif expiry(body) <= now then\n"
    "      gone[#gone + 1] = page[i]\n"
    "      expired = expired + 1\n"
    "    elseif count == most or (count > 0 and bytes + #body - 20 > room) then\n"
    "      more = 1\n"
    "      break\n"
    "    else\n"
    "      count = count + 1\n"
    "      bytes = bytes + #body - 20\n"
    "      out[2 * count - 1] = page[i + 1]\n"
    "      out[2 * count] = body\n"
    "    end\n"
    "    after = '(' .. page[i + 1]\n"
    "  end\n"
    "  if #gone > 0 then\n"
    "    redis.call('UNLINK', unpack(gone))\n"
    "    redis.call('ZREM', KEYS[1], unpack(gone))\n"
    "  end\n"
    "until more == 1 or #page < 400\n"
    "return {redis.call('ZCARD', KEYS[1]), expired, repaired, more, out}\n";

static const char lua_remove[] =
    "if redis.call('HGET', KEYS[2], 'generation') ~= ARGV[1] then return 0 end\n"
    "local removed = 0\n"
    "for from = 2, #ARGV, 1000 do\n"
    "  local keys = {}\n"
    "  for i = from, math.min(from + 999, #ARGV) do keys[#keys + 1] = KEYS[1] .. '_' .. ARGV[i] end\n"
    "  removed = removed + redis.call('ZREM', KEYS[1], unpack(keys))\n"
    "  redis.call('UNLINK', unpack(keys))\n"
    "end\n"
    "return removed\n";

/* The entry decides, not the body: that may have expired while the message was under way. */
static const char lua_mark[] =
    "if redis.call('HGET', KEYS[2], 'generation') ~= ARGV[1] then return 0 end\n"
    "local key = KEYS[1] .. '_' .. ARGV[2]\n"
    "if not redis.call('ZSCORE', KEYS[1], key) then return 0 end\n"
    "redis.call('SET', key, ARGV[3], 'PX', ARGV[4])\n"
    "return 1\n";

static const char lua_clear[] = LUA_RENEW
    "local kind = redis.call('TYPE', KEYS[2]).ok\n"
    "if kind ~= 'hash' and kind ~= 'none' then redis.call('UNLINK', KEYS[2]) end\n"
    "if tonumber(ARGV[1]) == 0 then\n"
    "  empty()\n"
    "  redis.call('DEL', KEYS[2], KEYS[3])\n"
    "  return 1\n"
    "end\n"
    "local generation = redis.call('HGET', KEYS[2], 'generation')\n"
    "if generation and ARGV[1] < generation then return 0 end\n"
    "renew(ARGV[1])\n"
    "return 1\n";
/* clang-format on */

static sl_redis_script scripts[INBOX_LUA_COUNT] = {
    [INBOX_LUA_ADD] = {.text = lua_add},       [INBOX_LUA_READ] = {.text = lua_read},
    [INBOX_LUA_REMOVE] = {.text = lua_remove}, [INBOX_LUA_MARK] = {.text = lua_mark},
    [INBOX_LUA_CLEAR] = {.text = lua_clear},
};

static void name_all(void)
{
    for (size_t i = 0; i < INBOX_LUA_COUNT; i++)
        sl_redis_script_name(&scripts[i]);
}

const sl_redis_script *inbox_redis_scripts(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_all);
    return scripts;
}
