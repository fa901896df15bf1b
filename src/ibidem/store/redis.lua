-- Everything that changes a store, so that each change happens whole and alone whoever else is writing.
-- KEYS[1] begins every key; ARGV holds the verb, then what it needs. Nothing is written before all that could
-- refuse it has been looked at, because a script that fails half way is not undone.

local prefix, verb = KEYS[1], ARGV[1]
local BODY, SIZE, ADDED = prefix .. 'body', prefix .. 'size', prefix .. 'added'  -- by reference
local LINKS = prefix .. 'links'  -- how many sessions name a reference
local LOOSE = prefix .. 'loose'  -- originals that none names, by age
local USED, STATE = prefix .. 'used', prefix .. 'state'  -- by session
local TOTALS = prefix .. 'totals'
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

local function finish(session)
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

-- Sessions last used before then end, but for the one that is in use.
local function finish_older(before, using)
  for _, session in ipairs(call('ZRANGEBYSCORE', USED, '-inf', '(' .. before)) do
    if session ~= using then
      finish(session)
    end
  end
end

-- Loose originals first put before then go, but for those that are being put; how many that were.
local function drop_older(before, keep)
  local gone = 0
  for _, ref in ipairs(call('ZRANGEBYSCORE', LOOSE, '-inf', '(' .. before)) do
    if not keep[ref] then
      drop(ref)
      gone = gone + 1
    end
  end
  return gone
end

-- Whether there is room for so much more, after the oldest loose originals went; none goes in vain.
local function make_room(more, limit, keep)
  local excess = tonumber(call('HGET', TOTALS, 'stored') or 0) + more - limit
  local victims = {}
  if excess > 0 then
    for _, ref in ipairs(call('ZRANGE', LOOSE, 0, -1)) do
      if excess > 0 and not keep[ref] then
        excess = excess - call('HSTRLEN', BODY, ref)
        victims[#victims + 1] = ref
      end
    end
  end
  if excess > 0 and more > 0 then
    return false
  end
  for _, ref in ipairs(victims) do
    drop(ref)
  end
  return true
end

-- session, now, limit or '', age or '', then for each original: reference, body, size, and the body that it may replace
local function put()
  local session, now, limit, before = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local keep, new, more, others = {}, {}, 0, { 'others' }
  for at = 6, #ARGV, 4 do
    local ref, body, seen = ARGV[at], ARGV[at + 1], ARGV[at + 3]
    local there = call('HGET', BODY, ref)
    keep[ref] = true
    if not there or there == seen then
      new[#new + 1] = at
      more = more + #body - #(there or '')
    elseif there ~= body then
      others[#others + 1] = ref
    end
  end
  if #others > 1 then
    return others
  end
  if before ~= '' then
    finish_older(before, session)
    drop_older(before, keep)
  end
  if limit ~= '' and not make_room(more, tonumber(limit), keep) then
    return { 'full' }
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
  for at = 6, #ARGV, 4 do
    link(session, ARGV[at])
  end
  return { 'done' }
end

-- session, now, state, then the references
local function save()
  local session, live = ARGV[2], {}
  use(session, ARGV[3])
  call('HSET', STATE, session, ARGV[4])
  for at = 5, #ARGV do
    live[ARGV[at]] = true
    link(session, ARGV[at])
  end
  for _, ref in ipairs(call('SMEMBERS', refs(session))) do
    if not live[ref] then
      unlink(session, ref)
    end
  end
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
  return drop_older('+inf', {})
end

-- before
local function forget_older()
  finish_older(ARGV[2], nil)
  return drop_older(ARGV[2], {})
end

local function forget_all()
  local gone = call('HLEN', BODY)
  for _, session in ipairs(call('ZRANGE', USED, 0, -1)) do
    call('UNLINK', refs(session))
  end
  call('UNLINK', BODY, SIZE, ADDED, LINKS, LOOSE, USED, STATE, TOTALS)
  return gone
end

local verbs = { put = put, save = save, load = load, forget = forget, forget_older = forget_older, forget_all = forget_all }
return verbs[verb]()
