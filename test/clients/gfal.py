"""Stages and reads files as a transfer tool with gfal2 does. Reports each step as a line of JSON."""
import json
import os
import sys
import time

import gfal2


def report(step, value):
    print(json.dumps([step, value]), flush=True)


def attempt(step, work):
    try:
        report(step, work())
    except gfal2.GError as error:
        report(step, {"code": error.code, "message": error.message})


def messages(errors):
    return [None if error is None else error.message for error in errors]


def wait_online(context, urls, token):
    for _ in range(600):
        errors = context.bring_online_poll(urls, token)
        if all(error is None for error in errors):
            break
        time.sleep(0.1)
    return messages(errors)


def main(base, directory, good, missing):
    context = gfal2.creat_context()
    context.set_opt_string("X509", "CA_PATH", os.environ["CA_PATH"])
    context.cred_set("davs://", context.cred_new("BEARER", os.environ["BEARER_TOKEN"]))
    urls = [base + good[0], base + good[1]]
    for name in ("taperestapi.version", "taperestapi.uri", "taperestapi.sitename"):
        attempt(name, lambda: context.getxattr(urls[0], name))
    attempt("status before", lambda: context.getxattr(urls[0], "user.status"))
    errors, token = context.bring_online(urls + [base + missing], 86400, 600, True)
    report("submitted", [messages(errors), len(token)])
    report("online", wait_online(context, urls, token))
    report("missing", messages(context.bring_online_poll([base + missing], token)))
    attempt("status", lambda: context.getxattr(urls[0], "user.status"))
    attempt("size", lambda: context.stat(urls[0]).st_size)
    attempt("is directory", lambda: context.stat(base + "/").st_mode & 0o170000 == 0o040000)
    attempt("list", lambda: sorted(name for name in context.listdir(base) if name not in (".", "..")))
    attempt("adler32", lambda: context.checksum(urls[0], "ADLER32"))
    for index, url in enumerate(urls):
        params = context.transfer_parameters()
        params.overwrite = True
        params.set_checksum(gfal2.checksum_mode.both, "ADLER32", "")
        attempt("copy", lambda: context.filecopy(params, url, "file://%s/%d" % (directory, index)))
    spaced = [base + "/with%20space"]
    _, spaced_token = context.bring_online(spaced, 86400, 600, True)
    report("spaced", wait_online(context, spaced, spaced_token))
    reader = context.open(urls[1], "r")
    report("read", reader.read(10))
    report("released", messages(context.release(urls, token)))
    for _ in range(600):
        if "ONLINE" not in context.getxattr(urls[0], "user.status"):
            break
        time.sleep(0.1)
    attempt("status after", lambda: context.getxattr(urls[0], "user.status"))
    attempt("adler32 of the tape copy", lambda: context.checksum(urls[0], "ADLER32"))
    report("archived", messages(context.archive_poll(urls)))
    _, token = context.bring_online(urls, 86400, 600, True)
    report("aborted", messages(context.abort_bring_online(urls, token)))


main(sys.argv[1], sys.argv[2], sys.argv[3:5], sys.argv[5])
