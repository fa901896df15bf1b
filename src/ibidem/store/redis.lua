-- Everything that changes a store, so that each change happens whole and alone whoever else is writing.
-- KEYS[1] begins every key; ARGV holds the verb, then what it needs. Nothing is written before all that could
-- refuse it has been looked at, because a script that fails half way is not undone.

local prefix, verb = KEYS[1], ARGV[1]
local BODY, SIZE, ADDED = prefix .. 'body', prefix .. 'size', prefix .. 'added'  -- by reference
local LINKS = prefix .. 'links'  -- how many sessions name a reference
local LOOSE = prefix .. 'loose'  -- originals that none names, by age
local USED, STATE = prefix .. 'used', prefix .. 'state'  -- by session
local TOTALS = prefix .. 'totals'  -- bytes: of bodies and states as they are kept, of texts
local call = redis.call

local function refs(session)
  return prefix .. 'refs:' .. session
end

-- A clock that is set back must not age what is in use.
local function use(session, now)
  local used = call('ZSCORE', USED, session)
  if not used or tonumber(used) < tonumber(now) then
    call('ZADD', USED, now, session)
  end
end

local function link(session, ref)
  if call('SADD', refs(session), ref) == 1 then
    call('HINCRBY', LINKS, ref, 1)
    call('ZREM', LOOSE, ref)
  end
end

local function unlink(session, ref)
  call('SREM', refs(session), ref)
  if call('HINCRBY', LINKS, ref, -1) <= 0 then
    call('HDEL', LINKS, ref)
    local added = call('ZSCORE', ADDED, ref)
    if added then
      call('ZADD', LOOSE, added, ref)
    end
  end
end

local function count_state(session, sign)
  local length = call('HSTRLEN', STATE, session)
  call('HINCRBY', TOTALS, 'states', string.format('%d', sign * length))
end

local function finish(session)
  count_state(session, -1)
  for _, ref in ipairs(call('SMEMBERS', refs(session))) do
    unlink(session, ref)
  end
  call('ZREM', USED, session)
  call('HDEL', STATE, session)
end

local function count(ref, sign)
  local stored, size = call('HSTRLEN', BODY, ref), tonumber(call('HGET', SIZE, ref) or 0)
  call('HINCRBY', TOTALS, 'stored', string.format('%d', sign * stored))  -- Lua itself would write "-0"
  call('HINCRBY', TOTALS, 'size', string.format('%d', sign * size))
end

local function drop(ref)
  count(ref, -1)
  call('HDEL', BODY, ref)
  call('HDEL', SIZE, ref)
  call('ZREM', ADDED, ref)
  call('ZREM', LOOSE, ref)
end

-- Sessions last used before then end.
local function finish_older(before)
  for _, session in ipairs(call('ZRANGEBYSCORE', USED, '-inf', '(' .. before)) do
    finish(session)
  end
end

-- Loose originals first put before then go; how many that were.
local function drop_older(before)
  local gone = call('ZRANGEBYSCORE', LOOSE, '-inf', '(' .. before)
  for _, ref in ipairs(gone) do
    drop(ref)
  end
  return #gone
end

-- One slice of what may go, as the arguments from `at` on say: sessions last used before then are over, before then idle,
-- limit or '', and how many sessions, originals and bytes a slice has. Answers how many originals and sessions went, the
-- bytes above the limit that are left, and whether nothing else may go now.
local function prune(at)
  local over, idle, limit = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local most = { sessions = tonumber(ARGV[at + 3]), originals = tonumber(ARGV[at + 4]), bytes = tonumber(ARGV[at + 5]) }
  local gone = { sessions = 0, originals = 0, bytes = 0 }

  local function spent()
    return gone.sessions >= most.sessions or gone.originals >= most.originals or gone.bytes >= most.bytes
  end

  local function excess()
    local totals = call('HMGET', TOTALS, 'stored', 'states')
    return limit and math.max(0, tonumber(totals[1] or 0) + tonumber(totals[2] or 0) - limit) or 0
  end

  -- The least recently used session goes, if that was before then.
  local function finish_one(before)
    local session = call('ZRANGEBYSCORE', USED, '-inf', '(' .. before, 'LIMIT', 0, 1)[1]
    if session then
      finish(session)
      gone.sessions = gone.sessions + 1
    end
    return session
  end

  -- The oldest that no session names go, if they are from before then: as many as are wanted.
  local function drop_oldest(before, wanted)
    local most_now = math.max(0, most.originals - gone.originals)
    for _, ref in ipairs(call('ZRANGEBYSCORE', LOOSE, '-inf', '(' .. before, 'LIMIT', 0, most_now)) do
      if wanted <= 0 or gone.bytes >= most.bytes then
        return
      end
      local length = call('HSTRLEN', BODY, ref)
      drop(ref)
      wanted, gone.bytes, gone.originals = wanted - length, gone.bytes + length, gone.originals + 1
    end
  end

  while not spent() and finish_one(over) do
  end
  drop_oldest(over, math.huge)
  local left = excess()
  while left > 0 and not spent() do
    drop_oldest('+inf', left)
    left = excess()
    if left > 0 and not spent() and not finish_one(idle) then
      break
    end
  end
  return { gone.originals, gone.sessions, left, spent() and 0 or 1 }
end

local SLICE = 6  -- arguments of a slice

-- session, now, slice, then for each original: reference, body, size, and the body that it may replace
local function put()
  local session, now = ARGV[2], ARGV[3]
  local new, others = {}, { 'others' }
  for at = 4 + SLICE, #ARGV, 4 do
    local ref, body, seen = ARGV[at], ARGV[at + 1], ARGV[at + 3]
    local there = call('HGET', BODY, ref)
    if not there or there == seen then
      new[#new + 1] = at
    elseif there ~= body then
      others[#others + 1] = ref
    end
  end
  if #others > 1 then
    return others
  end
  for _, at in ipairs(new) do
    local ref = ARGV[at]
    count(ref, -1)
    call('HSET', BODY, ref, ARGV[at + 1])
    call('HSET', SIZE, ref, ARGV[at + 2])
    call('ZADD', ADDED, 'NX', now, ref)
    count(ref, 1)
  end
  use(session, now)
  for at = 4 + SLICE, #ARGV, 4 do
    link(session, ARGV[at])
  end
  return { 'done', unpack(prune(4)) }
end

-- session, now, slice, state, then the references
local function save()
  local session, live = ARGV[2], {}
  use(session, ARGV[3])
  count_state(session, -1)
  call('HSET', STATE, session, ARGV[4 + SLICE])
  count_state(session, 1)
  for at = 5 + SLICE, #ARGV do
    live[ARGV[at]] = true
    link(session, ARGV[at])
  end
  for _, ref in ipairs(call('SMEMBERS', refs(session))) do
    if not live[ref] then
      unlink(session, ref)
    end
  end
  return prune(4)
end

-- session, now
local function load()
  if not call('ZSCORE', USED, ARGV[2]) then
    return false
  end
  use(ARGV[2], ARGV[3])
  return call('HGET', STATE, ARGV[2])
end

-- session
local function forget()
  finish(ARGV[2])
  return drop_older('+inf')
end

-- before
local function forget_older()
  finish_older(ARGV[2])
  return drop_older(ARGV[2])
end

local function forget_all()
  local gone = call('HLEN', BODY)
  for _, session in ipairs(call('ZRANGE', USED, 0, -1)) do
    call('UNLINK', refs(session))
  end
  call('UNLINK', BODY, SIZE, ADDED, LINKS, LOOSE, USED, STATE, TOTALS)
  return gone
end

-- slice
local function prune_some()
  return prune(2)
end

-- What was written before states were counted is counted once.
if call('HEXISTS', TOTALS, 'states') == 0 and verb ~= 'load' then
  local states = 0
  for _, session in ipairs(call('HKEYS', STATE)) do
    states = states + call('HSTRLEN', STATE, session)
  end
  call('HSET', TOTALS, 'states', string.format('%d', states))
end

local verbs = {
  put = put,
  save = save,
  load = load,
  forget = forget,
  forget_older = forget_older,
  forget_all = forget_all,
  prune = prune_some,
}
return verbs[verb]()
