-- Ends a hold of a plain lock, an election or a once, or gives up a place for it, and lets the next one in.
-- KEYS 1 lock, 2 line, 3 due, 4 gone, 5 token, then for plain locks 6 queue, 7 queue deadlines
-- ARGV 1 id, 2 its token or "", 3 last token used or "", 4 ms to keep or "", 5 channel, 6 grace,
--      7 "1" to leave a place, 8 ms to refuse requests of id that are still on their way or "",
--      9 kind, 10 result
-- Replies 1 if the hold was there, else 0.
local lock, line, due, gone, token, queue, qdue = unpack(KEYS)
local id, channel, grace = ARGV[1], ARGV[5], tonumber(ARGV[6])
local time = redis.call('TIME')

local mine = redis.pcall('HEXISTS', lock, id) == 1
if mine and (ARGV[2] ~= '' or ARGV[3] ~= '') then
  local record = redis.call('GET', token)
  local last, rest, first, owner = string.match(record or '', '^(%S+)( (%d+) (.*))$')
  if owner == id then
    if ARGV[2] ~= '' and ARGV[2] ~= first then return 0 end
    if ARGV[3] ~= '' and ARGV[3] ~= last and string.sub(last, 1, 1) ~= '+' and
      (#ARGV[3] < #last or #ARGV[3] == #last and ARGV[3] < last) and
      (#ARGV[3] > #first or #ARGV[3] == #first and ARGV[3] >= first) then
      redis.call('SET', token, ARGV[3] .. rest, 'KEEPTTL')
    end
  end
end

if mine and ARGV[4] == '' and ARGV[7] == '' then
  redis.call('DEL', lock)
  if (queue and redis.call('EXISTS', line, queue) or redis.call('EXISTS', line)) == 0 then
    redis.call('PUBLISH', channel, '0')
    return 1
  end
elseif not mine and ARGV[7] == '' and ARGV[8] == '' then
  return 0
end

--@ line
--@ queue

-- pass lets the next of the line come, and tells the one behind it to look when that did not. It answers whether there is one.
local function pass()
  while true do
    local two = redis.call('ZRANGE', line, 0, 1)
    local m = two[1]
    if not m then return false end
    if alive(m) <= ms then
      drop(m)
    elseif queue and let(channel, '0', m) then
      return true
    elseif call(m) then
      if two[2] and process(two[2]) ~= process(m) then wake(two[2], grace) end
      return true
    end
  end
end

local function passqueue()
  local m, till = nil, nil
  if queue then m, till = head() end
  if m then summon(m, till) end
  return m
end

local function free()
  if ARGV[9] == 'fair' and passqueue() then return end
  if pass() then
    if not queue then redis.call('PUBLISH', channel, '0') end
    return
  end
  if passqueue() then return end
  redis.call('PUBLISH', channel, '0')
end

if ARGV[7] == '1' then
  drop(id)
  if queue and redis.call('ZREM', qdue, id) == 1 then redis.call('LREM', queue, 0, id) end
end
if ARGV[8] ~= '' then
  redis.call('ZADD', gone, ms + ARGV[8], id)
  if redis.call('PTTL', gone) < tonumber(ARGV[8]) then redis.call('PEXPIRE', gone, ARGV[8]) end
end
if not mine then
  if redis.call('EXISTS', lock) == 0 and redis.call('EXISTS', line, queue or line) > 0 then free() end
  return 0
end
if ARGV[4] == '' then
  redis.call('DEL', lock)
  free()
  return 1
end

-- The name stays taken, but not by anybody who could renew or release it.
if ARGV[9] == 'once' then
  redis.call('DEL', lock)
  redis.call('HSET', lock, 'kind', 'once', 'done', ARGV[10])
  for _, m in ipairs(redis.call('ZRANGE', line, 0, -1)) do wake(m) end
  redis.call('DEL', line, due)
else
  redis.call('HDEL', lock, id)
  redis.call('HSET', lock, id .. ':kept', 1)
  local m = redis.call('ZRANGE', line, 0, 0)[1]
  if m then wake(m) end
  local h = queue and head()
  if h and redis.call('PUBLISH', 'pawl_wake:' .. process(h), h) == 0 then redis.call('PUBLISH', channel .. ':' .. h, '0') end
end
redis.call('PEXPIRE', lock, ARGV[4])
redis.call('PUBLISH', channel, '0')
return 1
