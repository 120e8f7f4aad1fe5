"""Google's SDK for Python against the REST door: python rest_client.py URL. It prints what it got as JSON."""
import json
import sys

from google import genai

client = genai.Client(api_key="anything", http_options={"base_url": sys.argv[1]})
models = client.models


def weather(city: str) -> str:
    """The weather of a city."""
    return "sunny in " + city


MODEL = "gemini-3.8-flash"
print(json.dumps({
    "generated": models.generate_content(model=MODEL, contents="Hello").text,
    "streamed": [piece.text for piece in models.generate_content_stream(model=MODEL, contents="one two three four")],
    "counted": models.count_tokens(model=MODEL, contents="some words").total_tokens,
    "embedded": [len(e.values) for e in models.embed_content(model="gemini-embedding-001", contents=["a", "b"]).embeddings],
    "called": client.chats.create(model=MODEL, config={"tools": [weather]}).send_message('/tool weather {"city":"Rome"}').text,
}))
