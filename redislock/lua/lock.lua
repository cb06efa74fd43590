-- Takes a plain lock (Exclusive), an election (Leader) or a once (Once), or gets in line for it.
-- KEYS 1 lock, 2 line, 3 due, 4 other, 5 token, 6 set of permits, 7 counter (fenced only)
-- ARGV 1 id, 2 ttl, 3 span, then unless all are none 4 "1" to wait, 5 kind ("" for Exclusive), 6 value
-- Replies the first token, or {"again", token}, {"held", pttl, again, ahead, owners, value}, {"done", pttl, result},
-- {"mismatch", family}, {"gone"}.
local id, kind = ARGV[1], ARGV[5] or ''
local free = redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[4]) == 0
local time = redis.call('TIME')

-- What follows at once is the usual case once more, kept short: functions, and numbers as arguments, cost more than the
-- commands themselves.
if free and kind == '' and not KEYS[7] then
  local first, last, px = time[1] .. string.sub('00000' .. time[2], -6), nil, '86400001'
  if ARGV[3] == '1' then
    last = first
  else
    last = string.format('%.0f', first + ARGV[3] - 1)
    px = string.format('%.0f', 86400001 + math.ceil(ARGV[3] / 1000))
  end
  local old = redis.call('SET', KEYS[5], last .. ' ' .. first .. ' ' .. id, 'PX', px, 'GET')
  if not old or string.byte(old, 17) == 32 and string.sub(old, 1, 16) < first then
    redis.call('HSET', KEYS[1], id, '1')
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return first
  end
  redis.call('SET', KEYS[5], old)
end

local lock, line, due, other, token, set, counter = unpack(KEYS)
local ttl, span, value = ARGV[2], tonumber(ARGV[3]), ARGV[6]
local grace, beat = kind == 'leader' and 1000 or 30, 300000
--@ token
--@ family
--@ plain
if free then return take() end

--@ line
local why, vacant, owners = busy()
if why then
  if why[1] == 'done' then drop(id) end
  return why
end

-- first answers nil if id may take the free lock, or until when (ms) another may.
local function first()
  local till = others()
  if till then return till end
  while true do
    local m = redis.call('ZRANGE', line, 0, 0)[1]
    if not m or m == id then return nil end
    till = alive(m)
    if till <= ms then
      drop(m)
    elseif till <= ms + grace then
      return till
    elseif call(m) then
      return ms + grace
    end
  end
end

local till = vacant and first()
if vacant and not till then
  drop(id)
  return take()
end
if ARGV[4] == '1' then join(id, beat) end
return {'held', redis.call('PTTL', lock), till and till - ms + 1 or 0, ahead(id), owners or {},
  kind == 'leader' and redis.call('HGET', lock, 'value') or ''}
