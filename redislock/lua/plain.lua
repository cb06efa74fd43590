-- The part that all attempts for a plain lock share: a hash with one field, the owner, and in it the token or "1".

local function take()
  local first = kind == '' and span == 1 and not counter and stamp()
  if first then
    redis.call('HSET', lock, id, first)
  else
    first = reserve(span)
    if kind == '' then
      redis.call('HSET', lock, id, '1')
    else
      redis.call('HSET', lock, id, 1, 'kind', kind, 'value', value)
    end
  end
  redis.call('PEXPIRE', lock, ttl)
  return first
end

-- busy answers why the lock cannot be had, or false and whether it is free; and who has it.
local function busy()
  if redis.call('ZSCORE', due, '!' .. id) then return {'gone'} end
  if redis.call('EXISTS', other) == 1 and not idle(other) then return {'mismatch', family(other)} end
  local n = redis.pcall('HLEN', lock)
  if type(n) == 'table' then
    if not idle(lock) then return {'mismatch', family(lock)} end
    n = 0
  end
  if n == 0 then return false, true end
  local have = family(lock)
  if have ~= (kind == '' and 'exclusive' or kind) then return {'mismatch', have} end
  local owners = {}
  for _, f in ipairs(redis.call('HKEYS', lock)) do
    if f == id then
      if redis.call('PTTL', lock) < tonumber(ttl) then redis.call('PEXPIRE', lock, ttl) end
      return {'again', stamped(redis.call('HGET', lock, id)) or select(3, recorded()) or reserve(1)}
    end
    if f == 'done' then return {'done', redis.call('PTTL', lock), redis.call('HGET', lock, 'done')} end
    if string.find(f, ':', 1, true) then owners[#owners + 1] = f end
  end
  return false, false, owners
end
