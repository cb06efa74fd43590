-- Tokens are decimal text of at most 19 digits, since Lua's numbers are exact up to 2^53 only. The token key holds the last
-- one reserved and, unless that is the same, the first one of the present hold: "<last> <first>", or "<last>+<first>" if the
-- last was raised.

local function above(a, b) return #a > #b or #a == #b and a > b end

local function plus(a, n)
  local low = tonumber(string.sub(a, -15)) + n
  local high = (#a > 15 and tonumber(string.sub(a, 1, -16)) or 0) + math.floor(low / 1e15)
  if high == 0 then return string.format('%.0f', low) end
  return string.format('%.0f%015.0f', high, low % 1e15)
end

-- record keeps tokens until the server's clock has passed them by a day.
local function record(last, sign, first)
  local ahead = math.max(0, tonumber(last) - (time[1] * 1000000 + time[2]))
  redis.call('SET', token, last == first and last or last .. sign .. first, 'PX',
    string.format('%.0f', 86400001 + math.ceil(ahead / 1000)))
end

-- recorded answers the last token, what follows it (" ", "+" or ""), and the first one of the present hold.
local function recorded()
  local last, sign, first = string.match(redis.call('GET', token) or '', '^(%d+)([ +]?)(%d*)$')
  return last, sign, first == '' and last or first
end

-- reserve takes span tokens above all earlier ones and not below the server's clock in microseconds. It answers the first.
local function reserve(span)
  local first, last
  if counter then
    first = string.format('%.0f', redis.call('INCR', counter))
    last = first
  else
    first = string.format('%.0f', time[1] * 1000000 + time[2])
    local was = recorded()
    if was and not above(first, was) then first = plus(was, 1) end
    last = plus(first, span - 1)
    if above(last, '9223372036854775807') then error('pawl: the tokens of this name are used up') end
  end
  record(last, ' ', first)
  return first
end
