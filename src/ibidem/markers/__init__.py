"""Texts that the model reads in place of others, and how to restore the originals.

- `backref`, `eviction_markers`: markers of Ibidem's own profiles, for text above and for text in the store: wording,
  grammar and parser. `codetether`: another system's wording, byte for byte.
- `source_numbers`: which text is `result 14`. `layout`, `line_offsets`: which of its lines is line 12.
- `restore`: one text with all its markers resolved.
- `layout_codecs`: shorter layouts of tool output.

Markers are in requests that were sent, in providers' caches and in users' stores. A changed word costs a rewrite of
each, and old markers must stay readable. A marker is trusted only if a digest agrees, because a tool may print any
text. Tests: tests/markers; the grammar for readers is docs/markers.md.
"""
