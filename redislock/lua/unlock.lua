-- Ends a hold of a plain lock, an election or a once, or gives up a place for it, and lets the next one in.
-- KEYS 1 lock, 2 line, 3 due, 4 token, then for plain locks 5 queue, 6 queue deadlines
-- ARGV 1 id, 2 its token or "", 3 the last token used if that is another one or "", 4 channel, then unless all are none
--      5 kind, 6 ms to keep or "", 7 result, 8 "1" to leave a place, 9 ms to refuse requests of id that are still on their
--      way or ""
-- Replies 1 if the hold was there, else 0.
local id, keep, leave, late = ARGV[1], ARGV[6] or '', ARGV[8] or '', ARGV[9] or ''

local record = ARGV[2] ~= '' and redis.call('GET', KEYS[4])
if record and (ARGV[3] ~= '' or record ~= ARGV[2] .. ' ' .. ARGV[2] .. ' ' .. id) then
  local function less(a, b) return #a < #b or #a == #b and a < b end
  local last, rest, first, owner = string.match(record, '^(%S+)( (%d+) (.*))$')
  if owner == id then
    if ARGV[2] ~= first then return 0 end
    -- The next tokens begin behind the last one used, unless others were given out or it was raised since.
    local used = ARGV[3] ~= '' and ARGV[3] or ARGV[2]
    if used ~= last and not string.find(last, '+', 1, true) and less(used, last) and not less(used, first) and
      redis.pcall('HEXISTS', KEYS[1], id) == 1 then
      redis.call('SET', KEYS[4], used .. rest, 'KEEPTTL')
    end
  end
end

local mine
if keep == '' then
  mine = redis.pcall('HDEL', KEYS[1], id) == 1
  if leave == '' and mine and KEYS[5] and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[5]) == 0 then
    redis.call('PUBLISH', ARGV[4], '0')
    return 1
  end
  if leave == '' and not mine and late == '' then return 0 end
else
  mine = redis.pcall('HEXISTS', KEYS[1], id) == 1
  if not mine then return 0 end
end

local lock, line, due, token, queue, qdue = unpack(KEYS)
local channel, kind = ARGV[4], ARGV[5] or ''
local time = redis.call('TIME')
local grace = kind == 'leader' and 1000 or 30
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
  if kind == 'fair' and passqueue() then return end
  if pass() then
    if not queue then redis.call('PUBLISH', channel, '0') end
    return
  end
  if passqueue() then return end
  redis.call('PUBLISH', channel, '0')
end

if leave == '1' then
  drop(id)
  if queue and redis.call('ZREM', qdue, id) == 1 then redis.call('LREM', queue, 0, id) end
end
if late ~= '' then refuse(id, late) end
if not mine then
  if redis.call('EXISTS', lock) == 0 and redis.call('EXISTS', line, queue or line) > 0 then free() end
  return 0
end
if keep == '' then
  redis.call('DEL', lock)
  free()
  return 1
end

-- The name stays taken, but not by anybody who could renew or release it.
if kind == 'once' then
  redis.call('DEL', lock)
  redis.call('HSET', lock, 'kind', 'once', 'done', ARGV[7])
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
redis.call('PEXPIRE', lock, keep)
redis.call('PUBLISH', channel, '0')
return 1
