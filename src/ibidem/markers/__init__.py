"""Every text that the model reads in place of another, and the way back from it.

- `backref`, `evicted`: markers of our own profiles, for what stands above and for what is in the store: their wording,
  grammar and parser. `codetether`: another system's words, to the byte.
- `numbering`: which text is `result 14`. `layout`, `lines`: which of its lines is line 12.
- `restore`: one text with all its markers resolved.
- `shapes`: layouts that are folded.

What is written here is in requests that were sent, in providers' caches and in users' stores: a changed word costs a
rewrite of each, and an old marker must still be read. A marker is believed only if a digest agrees, since a tool may
print anything. Tests: tests/markers; the grammar for readers is docs/markers.md.
"""
