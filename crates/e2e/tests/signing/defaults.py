"""AWS's library as it is used without settings: objects of every size, in one piece and in several."""
import io, sys, urllib.request

import boto3

BIG, own = sys.argv[1], boto3.client("s3")
big = open(BIG, "rb").read()


def expect(name, found, expected):
    print("python", name, "right" if found == expected else f"WRONG: {found!r:.200}", flush=True)


def got(key, **how):
    return own.get_object(Bucket="bucket", Key=key, **how)["Body"].read()


own.put_object(Bucket="bucket", Key="bytes", Body=b"some bytes")
expect("bytes", got("bytes"), b"some bytes")
own.put_object(Bucket="bucket", Key="file", Body=open(BIG, "rb"))
expect("file", got("file"), big)
own.upload_file(BIG, "bucket", "parts")
expect("parts", got("parts"), big)
own.upload_fileobj(io.BytesIO(big[:1000]), "bucket", "stream")
expect("stream", got("stream"), big[:1000])
own.download_file("bucket", "parts", "from-python")
expect("download", open("from-python", "rb").read(), big)
expect("range", got("parts", Range="bytes=9000000-9000099"), big[9000000:9000100])
expect("suffix", got("parts", Range="bytes=9000000-"), big[9000000:])
named = boto3.client("sts", region_name="eu-west-1").get_caller_identity()["Arn"]
expect("identity", named, "arn:welcome")
expect("tables", boto3.client("dynamodb").list_tables()["TableNames"][0], "welcome")
