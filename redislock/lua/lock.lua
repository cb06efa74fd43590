-- Takes a plain lock (Exclusive), an election (Leader) or a once (Once), or gets in line for it.
-- KEYS 1 lock, 2 line, 3 due, 4 other, 5 token, 6 set of permits, 7 counter (fenced only)
-- ARGV 1 id, 2 ttl, 3 span, 4 "1" to wait, 5 kind ("" for Exclusive), 6 value
-- Replies the first token, or {"again", token}, {"held", pttl, again, ahead, owners, value}, {"done", pttl, result},
-- {"mismatch", family}, {"gone"}.
local lock, line, due, other, token, set, counter = unpack(KEYS)
local id, ttl, span, kind, value = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[6]
local grace, beat = kind == 'leader' and 1000 or 30, 300000
local time = redis.call('TIME')
--@ token
--@ family
--@ plain
if redis.call('EXISTS', lock, due, other) == 0 then return take() end

--@ tell
--@ line
local why, free, owners = busy()
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

local till = free and first()
if free and not till then
  drop(id)
  local first = take()
  if kind == '' and span > 1 and redis.call('EXISTS', line) == 1 then want(id) end
  return first
end
if ARGV[4] == '1' and join(id, beat) == 1 and kind == '' and owners and owners[1] and redis.call('ZCARD', line) == 1 then
  want(owners[1])
end
return {'held', redis.call('PTTL', lock), till and till - ms + 1 or 0, ahead(id), owners or {},
  kind == 'leader' and redis.call('HGET', lock, 'value') or ''}
