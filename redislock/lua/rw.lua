-- Takes a read or a write lock, or gets in line for it. A writer in line stops readers that come later.
-- KEYS 1 lock, 2 line, 3 due, 4 other, 5 token, 6 held, 7 hold (the key of a read hold), 8 set of permits
-- ARGV 1 id, 2 ttl, 3 span, 4 "1" to wait, 5 grace, 6 beat, 7 "1" to write
-- Replies as lock.lua does.
local lock, line, due, other, token, held, hold, set = unpack(KEYS)
local id, ttl, span, write = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[7] == '1'
local grace, beat, counter = tonumber(ARGV[5]), tonumber(ARGV[6]), nil
local me = write and id .. ':write' or id
local time = redis.call('TIME')
--@ token
--@ family

local function stretch(key)
  if redis.call('PTTL', key) < tonumber(ttl) then redis.call('PEXPIRE', key, ttl) end
end

local function take(mode)
  if write then
    local first = reserve(span)
    redis.call('HSET', lock, 'mode', 'write', me, '1')
    redis.call('PEXPIRE', lock, ttl)
    return first
  end
  local first = reserve(1)
  if not mode then redis.call('DEL', held) end
  redis.call('HSET', lock, 'mode', 'read', id, '1')
  redis.call('SET', hold, '1', 'PX', ttl)
  redis.call('HSET', held, id, first)
  stretch(lock)
  stretch(held)
  return first
end

if redis.call('EXISTS', lock, due, other) == 0 then return take() end

--@ tell
--@ line
if redis.call('ZSCORE', due, '!' .. id) then return {'gone'} end
if redis.call('EXISTS', other) == 1 then return {'mismatch', family(other)} end
local mode = redis.pcall('HGET', lock, 'mode')
if type(mode) == 'table' and idle(lock) then mode = false end
if type(mode) == 'table' or not mode and redis.call('EXISTS', lock) == 1 then return {'mismatch', family(lock)} end
if mode and redis.call('HEXISTS', lock, me) == 1 then
  stretch(lock)
  if write then return {'again', select(3, recorded()) or reserve(1)} end
  redis.call('SET', hold, '1', 'PX', ttl)
  return {'again', redis.call('HGET', held, id) or reserve(1)}
end

local function writes(m) return string.sub(m, -6) == ':write' end

-- first answers nil if me may go in beside what is held, or until when (ms, 0 for unknown) another one's turn is.
local function first()
  local till = others()
  if till then return till end
  for _, m in ipairs(redis.call('ZRANGE', line, 0, -1)) do
    if m == me then return nil end
    if write or writes(m) then
      till = alive(m)
      if till <= ms then
        drop(m)
      elseif not mode then
        if till <= ms + grace then return till end
        if call(m) then return ms + grace end
      elseif cluster or listens(m) then
        return 0
      else
        drop(m)
      end
    end
  end
  return nil
end

local fits = not mode or mode == 'read' and not write
local till = fits and first()
if fits and not till then
  drop(me)
  return take(mode)
end
if ARGV[4] == '1' then join(me, beat) end
local owners = {}
if redis.call('HLEN', lock) > 33 then
  owners = {'?'}
elseif mode then
  for _, f in ipairs(redis.call('HKEYS', lock)) do
    if f ~= 'mode' then owners[#owners + 1] = f end
  end
end
return {'held', redis.call('PTTL', lock), till and till > ms and till - ms + 1 or 0, ahead(me), owners, ''}
