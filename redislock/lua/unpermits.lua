-- Gives permits back, or gives up a place for them, and lets the next ones in.
-- KEYS 1 free permits, 2 set of permits by expiry, 3 line, 4 due, 5 held, 6 permits of pawl
-- ARGV 1 id, 2 its token or "", 3 permits, 4 ms to keep or "", 5 channel, 6 grace,
--      7 "1" to leave a place, 8 ms to refuse requests of id that are still on their way or "",
--      9 … the names of the permits, and with 4 those under which they are kept
-- Replies 1 if the permits were there, else 0.
local sem, set, line, due, held, ours = unpack(KEYS)
local id, k, channel, grace = ARGV[1], tonumber(ARGV[3]), ARGV[5], tonumber(ARGV[6])
local me = k > 1 and id .. '*' .. k or id
local time = redis.call('TIME')
--@ tell
--@ line
--@ weight

local first = redis.call('HGET', held, id)
if ARGV[2] ~= '' and first and first ~= ARGV[2] then return 0 end
if ARGV[7] == '1' then drop(me) end
if ARGV[8] ~= '' then refuse(id, ARGV[8]) end

local back, live = 0, 0
for i = 1, k do
  local till = redis.call('ZSCORE', set, ARGV[8 + i])
  if till then
    back = back + redis.call('ZREM', set, ARGV[8 + i])
    if tonumber(till) > ms then live = 1 end
  end
  redis.call('ZREM', ours, id .. '/' .. i)
end
redis.call('HDEL', held, id)
if live == 1 and ARGV[4] ~= '' then
  for i = 1, k do
    redis.call('ZADD', set, ms + ARGV[4], ARGV[8 + k + i])
    redis.call('ZADD', ours, ms + ARGV[4], id .. ':kept/' .. i)
  end
  back = 0
  local m = redis.call('ZRANGE', line, 0, 0)[1]
  if m then wake(m) end
end
local v = redis.pcall('GET', sem)
v = type(v) == 'string' and tonumber(v) or nil
if not v then return live end
if back > 0 then
  v = redis.call('INCRBY', sem, back)
  tell(channel, v)
end
-- Those in front of the line that fit together are called.
local need = 0
for _, m in ipairs(redis.call('ZRANGE', line, 0, -1)) do
  local t = alive(m)
  if t <= ms then
    drop(m)
  else
    if need + weight(m) > v then
      if cluster and need > 0 then wake(m, grace) end
      break
    end
    if t <= ms + grace or call(m) then need = need + weight(m) end
  end
end
return live
