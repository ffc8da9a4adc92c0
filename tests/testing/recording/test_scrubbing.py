"""Secrets in texts, by their values and by their shapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.testing.recording.scrubbing import SCRUBBED, Scrubber

SHAPED = Scrubber(environment={})

SECRETS = {
    "sk-ant-api03-AbCdEf0123456789-xyz": "the key is {}",
    "sk-proj-AbCdEf0123456789AbCdEf": "{}",
    "gsk_AbCdEf0123456789AbCdEf": "GROQ={}",
    "AIzaSyA-0123456789abcdefghijklmnopqrstu": "https://x.example/v1/models?alt=sse&key={}&x=1",
    "plainkeythatlookslikenothing": "https://x.example/v1beta/models?key={}",
    "ya29.a0AfH6SMBxyz_0123456789": "Authorization: Bearer {}",
    "opaque-token-1": "authorization: bearer {}",
    "dXNlcjpwYXNz": "Authorization: Basic {}",
    "another-token-2": '{{"Authorization": "Bearer {}", "x": 1}}',
    "escaped-token-3": '{{"log": "{{\\"x-api-key\\": \\"{}\\"}}"}}',
    "key-in-a-header": "> x-goog-api-key: {}\n> accept: */*",
    "AKIAIOSFODNN7EXAMPLE": "aws_access_key_id = {}",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "aws_secret_access_key = {}",
    "IQoJb3JpZ2luX2VjEJ": "x-amz-security-token: {}",
    "fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc963176630326f1024": (
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/bedrock/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature={}"
    ),
    "0123abcd0123abcd": "https://b.example/x?X-Amz-Credential=AKIA%2F2013&X-Amz-Signature={}&b=1",
    "session=abc123def; theme=dark": "Cookie: {}",
    "sid=31d4d96e407aad42": "set-cookie: {}; Path=/; HttpOnly",
    "org-AbCdEf0123456789": "openai-organization: {}",
    "org-AbCdEf0123456788": "Your organization {} is out of quota.",
    "acme-robotics": "OpenAI-Organization: {}",
    "org-AbCdEfGhIjKlMnOpQrStUvWx": "Your organization {} is out of quota.",
    "npm_AbCdEf0123456789AbCdEf": "//registry/:_authToken={}",
    "under-scored-key-4": 'api_key = "{}"',
    "secret-of-an-app-5": "client_secret: {}",
    "correct-horse-battery": "password={}",
    "hunter2-and-more": "postgres://app:{}@db.example/agents",
    "ghp_AbCdEf0123456789AbCdEf": "git clone with {}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN": "token {}",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC": "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
}


@pytest.mark.parametrize("secret,text", SECRETS.items())
def test_what_looks_like_a_secret_is_taken_out(secret: str, text: str) -> None:
    scrubbed = SHAPED.text(text.format(secret))
    assert secret not in scrubbed
    assert SCRUBBED in scrubbed
    assert SHAPED.text(scrubbed) == scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "The task-force looked at risk-assessment-of-everything under the bed.",
        "Send the header `Authorization: Bearer $TOKEN`, with ${KEY} or <your key>.",
        "https://x.example/a?page=2&keyboard=qwerty",
        "git commit 0123456789abcdef0123456789abcdef01234567",
        "org-chart and org-administration",
        "Cookies are small files.",
        '{"place": "bed", "key": "value"}',
        "host:443/path and user@example.com",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert SHAPED.text(text) == text


def test_values_of_the_environment_are_taken_out_by_the_names_of_their_variables() -> None:
    environment = {
        "LAB_API_KEY": "correct horse",
        "DB_PASSWORD": 'with "quotes" & more',
        "SHORT_TOKEN": "abc",
        "EMPTY_SECRET": "",
        "HOME": "/home/somebody",
        "PWD": "/home/somebody/here",
        "DB_PASS": "value of pass",
        "DB_PWD": "value of pwd",
        "BASIC_AUTH": "value of auth",
        "GITHUB_PAT": "value of pat",
        "AUTHOR": "Ada Lovelace",
    }
    scrubber = Scrubber(["given by hand"], environment)
    text = scrubber.text(
        'correct horse, with "quotes" & more, with \\"quotes\\" & more, ?p=with%20%22quotes%22%20%26%20more, '
        "given by hand, abc, /home/somebody/here, Ada Lovelace, "
        "value of pass, value of pwd, value of auth, value of pat"
    )
    stays = ["abc", "/home/somebody/here", "Ada Lovelace"]
    assert text == ", ".join([SCRUBBED] * 3 + [f"?p={SCRUBBED}", SCRUBBED, *stays] + [SCRUBBED] * 4)


def test_the_longer_of_two_values_is_taken_out_as_a_whole() -> None:
    assert Scrubber(["abcdefgh", "abcdefgh-ijkl"], {}).text("abcdefgh-ijkl") == SCRUBBED


def test_it_does_not_matter_whether_a_value_was_known_in_what_looks_like_a_secret() -> None:
    text = "GET /x?X-Amz-Credential=AKIDFAKE%2F2026 Authorization: Token AKIDFAKE-and-more; postgres://app:xAKIDFAKE@db"
    assert Scrubber(["AKIDFAKE"], {}).text(text) == SHAPED.text(text)


MARKS = [SCRUBBED, "Authorization", "Bearer", "Basic", "AWS4-HMAC-SHA256", "cookie", "x-api-key", "org-", "sk-"]
MARKS += ["aws_secret_access_key", "?key=", "&token=", "://", "@", ":", "=", " ", '"', "\\", "\n", ",", "a", "[", "]"]


@given(st.lists(st.sampled_from([*SECRETS, *MARKS]), max_size=12).map("".join))
def test_to_scrub_twice_is_to_scrub_once(text: str) -> None:
    once = SHAPED.text(text)
    assert SHAPED.text(once) == once
