-- Tokens are decimal text of at most 19 digits, since Lua's numbers are exact up to 2^53 only. The token key holds
-- "<last reserved> <first of the present hold> <its id>"; a last that was raised has a "+" behind it.

local function above(a, b) return #a > #b or #a == #b and a > b end

local function plus(a, n)
  local low = tonumber(string.sub(a, -15)) + n
  local high = (#a > 15 and tonumber(string.sub(a, 1, -16)) or 0) + math.floor(low / 1e15)
  if high == 0 then return string.format('%.0f', low) end
  return string.format('%.0f%015.0f', high, low % 1e15)
end

-- lifetime is how long, in ms, the token key is kept: until the server's clock has passed last by a day.
local function lifetime(last)
  local ahead = math.max(0, tonumber(last) - (time[1] * 1000000 + time[2]))
  return string.format('%.0f', 86400000 + math.ceil(ahead / 1000))
end

-- reserve takes span tokens above all earlier ones and not below the server's clock in microseconds. It answers the first.
local function reserve(id, span)
  if counter then
    local n = string.format('%.0f', redis.call('INCR', counter))
    redis.call('SET', token, n .. ' ' .. n .. ' ' .. id, 'PX', '86400000')
    return n
  end
  local now = time[1] * 1000000 + time[2]
  local first, last = string.format('%.0f', now), string.format('%.0f', now + span - 1)
  local old = redis.call('SET', token, last .. ' ' .. first .. ' ' .. id, 'PX', lifetime(last), 'GET')
  local was = old and string.match(old, '%d+')
  if was and not above(first, was) then
    first, last = plus(was, 1), plus(was, span)
    if above(last, '9223372036854775807') then
      redis.call('SET', token, old, 'PX', lifetime(was))
      error('pawl: the tokens of this name are used up')
    end
    redis.call('SET', token, last .. ' ' .. first .. ' ' .. id, 'PX', lifetime(last))
  end
  return first
end

-- reserved is the first token of the hold that took the last ones, if that is id's.
local function reserved(id)
  local first, owner = string.match(redis.call('GET', token) or '', '^%S+ (%d+) (.*)$')
  return owner == id and first or nil
end
