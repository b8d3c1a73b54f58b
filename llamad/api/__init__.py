"""JSON dialects to and from the engine's vocabulary: OpenAI's, Anthropic's, llama.cpp's own. No sockets, engine, clock.

`json_body` makes a document of bytes, `fields` reads it field by field, `generation`, `conversation`, `tools` and
`prompts` make requests of it; `turn` makes a prompt of a conversation, and says how its answer is read (`deltas`);
`chat`, `openai` and `native` turn what the engine says back into documents, `sse` into frames. `messages` (Anthropic's)
and `responses` make the same conversations of theirs (`fragments`), and have `…_answer` for documents. `template` alone
touches jinja2.

A field that would change the answer and is not supported is refused by name, never ignored (`unsupported`).
"""
