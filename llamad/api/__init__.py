"""JSON dialects to and from the engine's vocabulary: OpenAI's and llama.cpp's own. No sockets, no engine, no clock.

`json_body` makes a document of bytes, `fields` reads it field by field, `generation`, `conversation`, `prompts` and
`vocabulary_calls` make requests of it; `openai` and `native` turn what the engine says back into documents, `sse` into
frames. `template` alone touches jinja2.

A field that would change the answer and is not supported is refused by name, never ignored (`unsupported`).
"""
