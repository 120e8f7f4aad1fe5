"""OpenAI's SDK for Python against the REST door: python rest_openai_client.py URL. It prints what it got as JSON."""
import json
import sys

import openai

client = openai.OpenAI(api_key="anything", base_url=sys.argv[1] + "/v1")
hello = {"model": "local-1", "messages": [{"role": "user", "content": "Hello there"}]}
stream = client.chat.completions.create(**hello, stream=True, stream_options={"include_usage": True})
pieces = list(stream)
try:
    client.with_options(max_retries=0).chat.completions.create(model="local-1", messages=[{"role": "user", "content": "/fail"}])
except openai.RateLimitError as e:
    refused = e.body["message"]
print(json.dumps({
    "said": client.chat.completions.create(**hello).choices[0].message.content,
    "streamed": "".join(p.choices[0].delta.content or "" for p in pieces if p.choices),
    "tokens": pieces[-1].usage.total_tokens,
    "models": [m.id for m in client.models.list()],
    "refused": refused,
}))
