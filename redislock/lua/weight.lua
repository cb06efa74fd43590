-- weight is how many permits a place in line waits for.
local function weight(m) return tonumber(string.match(m, '%*(%d+)$') or 1) end
