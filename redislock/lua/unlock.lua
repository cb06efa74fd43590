-- Ends a hold of a plain lock, an election or a once, or gives up a place for it, and lets the next one in.
-- KEYS 1 lock, 2 line, 3 due, 4 token, then for plain locks 5 queue, 6 queue deadlines
-- ARGV 1 id, 2 its token or "", 3 the last token used or "", 4 ms to keep or "", 5 channel, 6 kind, 7 result, 8 "1" to leave a
--      place or "2" if the hold was ended already, 9 ms to refuse requests of id that are still on their way or ""
-- Replies 1 if the hold was there, else 0.
local lock, line, due, token, queue, qdue = unpack(KEYS)
local id, keep, channel, kind, how = ARGV[1], ARGV[4], ARGV[5], ARGV[6], ARGV[8]
local time = redis.call('TIME')
local grace, counter = kind == 'leader' and 1000 or 30, nil
--@ token

local field = redis.pcall('HGET', lock, id)
local mine = type(field) == 'string'
if mine and ARGV[2] ~= '' then
  local last, sign, first = recorded()
  local held = stamped(field) or first
  if held and held ~= ARGV[2] then return 0 end
  -- The next tokens begin behind the last one used, unless it was raised since.
  if first and sign == ' ' and not above(first, ARGV[3]) and above(last, ARGV[3]) then record(ARGV[3], ' ', first) end
end
if not mine and how == '' and ARGV[9] == '' then return 0 end

--@ tell
--@ line
--@ queue

-- pass lets the next of the line come, and tells the one behind it to look when that did not. It answers whether there is one.
local function pass()
  while true do
    local next = redis.call('ZRANGE', line, 0, behind)
    local m = next[1]
    if not m then return false end
    if alive(m) <= ms then
      drop(m)
    elseif queue and let(channel, '0', m) then
      return true
    elseif call(m) then
      for i = 2, #next do wake(next[i], (i - 1) * grace) end
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
    if not queue then tell(channel, '0') end
    return
  end
  if passqueue() then return end
  tell(channel, '0')
end

if how == '1' then
  drop(id)
  if queue and redis.call('ZREM', qdue, id) == 1 then redis.call('LREM', queue, 0, id) end
end
if ARGV[9] ~= '' then refuse(id, ARGV[9]) end
if how == '2' then
  for _, f in ipairs(redis.pcall('HKEYS', lock)) do
    if string.find(f, ':', 1, true) then return 1 end -- somebody has it by now
  end
  redis.call('DEL', lock)
  free()
  return 1
end
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
  if h and (publish('pawl_wake:' .. process(h), h) == 0 or cluster) then tell(channel .. ':' .. h, '0') end
end
redis.call('PEXPIRE', lock, keep)
tell(channel, '0')
return 1
