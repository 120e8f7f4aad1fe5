"""Calls each number of a file, four at a time, and prints what became of the calls and who answered. Machines hear nothing.
The server key is in VOXGATE_KEY.

    python3 campaign.py https://voxgate.example.com provider numbers.txt 30 "Remind them of the concert on Friday at eight."
"""
import json, os, sys, time, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor

url, trunk, file, ring_seconds, prompt = sys.argv[1:]
agent = {"prompt": prompt, "greeting": "Say who you are and why you call."}


def ask(path, body=None):
    headers = {"Authorization": "Bearer " + os.environ["VOXGATE_KEY"]}
    try:
        return json.load(urllib.request.urlopen(urllib.request.Request(url + path, body and json.dumps(body).encode(), headers)))
    except urllib.error.HTTPError as refusal:  # it did not ring, or the request is wrong
        return json.load(refusal)


def call(number):
    status = ask("/v1/calls", {"to": number, "trunk": trunk, "ringSeconds": int(ring_seconds), "agent": agent, "machine": {}})
    while "id" in status and "endedAt" not in status:
        time.sleep(0.5)
        status = ask("/v1/calls/" + status["id"])
    wrong = status.get("error", {})
    return number, status.get("state", wrong.get("code")), status.get("answeredBy", ""), status.get("reason") or wrong.get("message", "")


with ThreadPoolExecutor(4) as lines, open(file) as numbers:
    for outcome in lines.map(call, numbers.read().split()):
        print("{:20} {:12} {:8} {}".format(*outcome))
