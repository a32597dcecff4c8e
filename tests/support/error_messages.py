"""Messages of real libraries, with the secrets that they contain between ⟦ and ⟧."""

# ruff: noqa: E501  a message stays on one line

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Message(NamedTuple):
    """A message, its secrets, and the words that must remain."""

    text: str
    secrets: tuple[str, ...]
    kept: str


def message(marked: str, kept: str) -> Message:
    """Return a message whose secrets are marked."""
    return Message(re.sub("[⟦⟧]", "", marked), tuple(re.findall("⟦([^⟧]*)⟧", marked)), kept)


JWT: Final = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6y"
PEM: Final = "-----BEGIN PRIVATE KEY-----\\n⟦MIIEvQIBADANBgkqhkiG9w0⟧\\n-----END PRIVATE KEY-----\\n"

MESSAGES: Final[dict[str, Message]] = {
    # ---------------------------------------------------------------- databases
    "psycopg: conninfo": message(
        "connection failed: host=db.internal port=5432 user=app password=⟦hunter2⟧ dbname=shop: server closed",
        "host=db.internal port=5432 user=app password=",
    ),
    "psycopg: quoted conninfo": message(
        "invalid connection string: \"user='app' password='⟦hun ter\\'2⟧' host='db'\"", "user='app'"
    ),
    "psycopg: failing row": message(
        'null value in column "mail" of relation "users" violates not-null constraint\n'
        "DETAIL:  Failing row contains (7, ann, ⟦hunter2⟧, null).",
        "violates not-null constraint",
    ),
    "psycopg: duplicate key": message(
        'duplicate key value violates unique constraint "tokens_token_key"\n'
        "DETAIL:  Key (token)=(⟦tok-hunter2⟧) already exists.",
        "already exists",
    ),
    "psycopg: statement": message(
        "column \"x\" does not exist\nLINE 1: SELECT x FROM users WHERE pass = '⟦hunter2⟧'\n               ^",
        'column "x" does not exist',
    ),
    "psycopg: authentication": message(
        'connection to server at "10.0.0.1", port 5432 failed: FATAL:  password authentication failed for user "app"',
        'FATAL:  password authentication failed for user "app"',
    ),
    "psycopg2: invalid dsn": message(
        'invalid dsn: missing "=" after "⟦hunter2⟧" in connection info string\n', "invalid dsn"
    ),
    "psycopg2: password with @ in a URL": message(
        'could not translate host name "⟦ter2⟧@db.internal" to address: Name or service not known',
        "@db.internal",
    ),
    "psycopg2: alter role": message(
        "syntax error at or near \"WIHT\"\nLINE 1: ALTER ROLE app WIHT PASSWORD '⟦hunter2⟧'\n",
        "ALTER ROLE app",
    ),
    "asyncpg: argument": message(
        "invalid input for query argument $2: '⟦hunter2⟧' (expected int, got str)", "(expected int, got str)"
    ),
    "asyncpg: dsn": message(
        "invalid DSN: 'postgresql://app:⟦hunter2⟧@db:5432/shop?ssl=on&password=⟦hunter3⟧'",
        "postgresql://db:5432/shop",
    ),
    "asyncpg: wrong type": message(
        'invalid input syntax for type integer: "⟦hunter2⟧"', "invalid input syntax for type integer"
    ),
    "sqlalchemy: parameters": message(
        "(psycopg2.errors.UniqueViolation) duplicate key value\n"
        "[SQL: INSERT INTO users (name, pass) VALUES (%(name)s, %(pass)s)]\n"
        "[parameters: {'name': '⟦ann⟧', 'pass': '⟦hunter2⟧'}]\n"
        "(Background on this error at: https://sqlalche.me/e/20/gkpj)",
        "(Background on this error at: https://sqlalche.me/e/20/gkpj)",
    ),
    "sqlalchemy: many parameters": message(
        "(sqlite3.IntegrityError) UNIQUE constraint failed: users.name\n[SQL: INSERT INTO users VALUES (?, ?)]\n"
        "[parameters: [('⟦ann⟧', '⟦hunter2⟧'), ('⟦bob⟧', '⟦hunter3⟧')  ... displaying 2 of 900 total]]",
        "UNIQUE constraint failed: users.name",
    ),
    "sqlalchemy: literals": message(
        "(sqlite3.OperationalError) no such column: x\n[SQL: SELECT x FROM users WHERE hash = '⟦5f4dcc3b5aa7⟧']",
        "no such column: x",
    ),
    "sqlalchemy: URL": message(
        "Could not parse SQLAlchemy URL from string 'mysql+pymysql//app:⟦hunter2⟧@db/shop'",
        "Could not parse SQLAlchemy URL",
    ),
    "pymysql: duplicate entry": message(
        "(1062, \"Duplicate entry '⟦hunter2's⟧' for key 'sessions.token'\")", "for key 'sessions.token'"
    ),
    "pymysql: access denied": message(
        "(1045, \"Access denied for user 'app'@'10.0.0.7' (using password: YES)\")", "(using password: YES)"
    ),
    "pymysql: syntax": message(
        '(1064, "You have an error in your SQL syntax; check the manual for the right syntax to use near '
        "'⟦hunter2⟧' WHERE id = 7' at line 1\")",
        "You have an error in your SQL syntax",
    ),
    "pymysql: wrong value": message(
        "(1366, \"Incorrect integer value: '⟦hunter2⟧' for column 'pin' at row 1\")", "for column 'pin'"
    ),
    "mysql: create user": message(
        "Operation CREATE USER failed: CREATE USER 'app' IDENTIFIED BY '⟦hunter2⟧'",
        "Operation CREATE USER failed",
    ),
    "go-style dsn": message(
        "cannot open app:⟦hunter2⟧@tcp(db:3306)/shop: timeout", "@tcp(db:3306)/shop: timeout"
    ),
    "pyodbc: connection string": message(
        "('IM002', '[IM002] no driver: DRIVER={ODBC Driver 18};SERVER=tcp:db,1433;UID=sa;PWD=⟦hunter2⟧;Encrypt=yes')",
        "DRIVER={ODBC Driver 18};SERVER=tcp:db,1433;UID=sa;PWD=",
    ),
    "pyodbc: braces": message("Driver=x;PWD={⟦hun;ter2⟧};Server=db", ";Server=db"),
    "pyodbc: a blank in it": message("Driver=x;PWD=⟦hun ter2⟧;Server=db", ";Server=db"),
    "ado.net": message(
        "Login failed. Data Source=db;User ID=sa;Password=⟦hun,ter2⟧;Pooling=true",
        "Data Source=db;User ID=sa;",
    ),
    "mssql: duplicate": message(
        "Violation of UNIQUE KEY constraint 'UQ_t'. The duplicate key value is (⟦hunter2⟧).",
        "constraint 'UQ_t'",
    ),
    "oracledb: easy connect": message(
        "DPY-6005: cannot connect to database (scott/⟦tiger⟧@db.internal:1521/orcl)", "DPY-6005"
    ),
    "snowflake": message(
        "250001: Could not connect: {'account': 'x', 'user': 'app', 'password': '⟦hunter2⟧', 'authenticator': 'o'}",
        "'account': 'x'",
    ),
    "clickhouse": message(
        "Code: 516. DB::Exception: app: Authentication failed: password is incorrect, or there is no user",
        "password is incorrect",
    ),
    "redis: arguments": message(
        "unknown command 'AUHT', with args beginning with: 'app' '⟦hunter2⟧' ", "unknown command 'AUHT'"
    ),
    "redis: pipeline": message(
        "Command # 2 (AUTH app ⟦hunter2⟧) of pipeline caused error: WRONGPASS invalid username-password pair",
        "caused error: WRONGPASS invalid username-password pair",
    ),
    "redis: auth": message("-ERR unknown subcommand: AUTH ⟦hunter2⟧", "-ERR unknown subcommand"),
    "redis: URL": message("Error 111 connecting to redis://:⟦hunter2⟧@cache:6379/0.", "cache:6379/0"),
    "redis: requirepass": message("Bad directive: requirepass ⟦hunter2⟧", "Bad directive"),
    "pymongo: URL": message(
        "Invalid URI: mongodb+srv://app:⟦hunter2⟧@c0.mongodb.net/?authSource=admin", "c0.mongodb.net"
    ),
    "pymongo: duplicate": message(
        'E11000 duplicate key error collection: shop.sessions index: token_1 dup key: { token: "⟦hunter2⟧" }, '
        "full error: {'index': 0, 'code': 11000, 'keyValue': {'token': '⟦hunter2⟧'}}",
        "E11000 duplicate key error collection: shop.sessions",
    ),
    "cassandra": message(
        "('Unable to connect', PlainTextAuthProvider(username='app', password='⟦hunter2⟧'))", "username='app'"
    ),
    "neo4j": message("unauthorized: basic_auth('neo4j', '⟦hunter2⟧') refused", "unauthorized"),
    # ---------------------------------------------------------------- HTTP
    "requests: pool": message(
        "HTTPSConnectionPool(host='api.test', port=443): Max retries exceeded with url: /v1?api_key=⟦hunter2⟧ "
        "(Caused by NewConnectionError('refused'))",
        "(Caused by NewConnectionError('refused'))",
    ),
    "requests: HTTPError": message(
        "401 Client Error: Unauthorized for url: https://ann:⟦hunter2⟧@api.test/v1?token=⟦abc123⟧",
        "401 Client Error",
    ),
    "requests: invalid URL": message("Failed to parse: ann:⟦hunter2⟧@api.test:port", "Failed to parse"),
    "requests: auth": message("bad call: get('https://h/', auth=('ann', '⟦hunter2⟧'))", "bad call"),
    "urllib3: header": message(
        "Invalid header value: {'X-Auth-Token': '⟦hunter2\\n⟧', 'Accept': '*/*'}", "'Accept': '*/*'"
    ),
    "urllib: port": message("nonnumeric port: '⟦hunter2⟧@db'", "nonnumeric port"),
    "urllib: cast": message("Port could not be cast to integer value as '⟦hunt⟧'", "Port could not be cast"),
    "httpx: status": message(
        "Client error '401 Unauthorized' for url 'https://api.test/?access_token=⟦hunter2⟧'\nFor more information",
        "Client error '401 Unauthorized'",
    ),
    "httpx: header": message("Illegal header value b'⟦hunter2\\n⟧'", "Illegal header value"),
    "aiohttp": message(
        "401, message='Unauthorized', url='https://api.test/x?sig=⟦hunter2⟧'", "401, message='Unauthorized'"
    ),
    "header lines": message(
        "sent: GET / HTTP/1.1\r\nAuthorization: Bearer ⟦abc.def⟧\r\nX-Api-Key: ⟦hunter2⟧\r\n"
        "Cookie: ⟦sid=abc; b=c⟧\r\nX-Auth-Token: ⟦hunter3⟧\r\nHost: h",
        "Host: h",
    ),
    "curl": message(
        "Command '['curl', '-u', '⟦ann:hunter2⟧', 'https://h/']' returned non-zero exit status 22.", "'curl'"
    ),
    "form body": message(
        "bad request: grant_type=client_credentials&client_id=app&client_secret=⟦hunter2⟧&scope=all",
        "&scope=all",
    ),
    "percent-encoded": message("bad body: %7B%22password%22%3A%22⟦hunter2⟧%22%7D", "bad body"),
    "oauth": message(
        'invalid_grant: {"refresh_token":"⟦1//0hunter2⟧","clientSecret":"⟦x-y-z⟧","id_token":"⟦a.b.c⟧"}',
        "invalid_grant",
    ),
    "jwt": message(f"Signature verification failed: ⟦{JWT}⟧", "Signature verification failed"),
    "multi-level JSON": message(
        '400: {"detail": "{\\"user\\": \\"ann\\", \\"password\\": \\"⟦hun\\\\\\"ter2⟧\\", \\"n\\": 1}"}',
        '\\"n\\": 1',
    ),
    "xml": message("<soap:Fault><wsse:Password>⟦hunter2⟧</wsse:Password><code>7</code>", "<code>7</code>"),
    "proxy": message("Cannot connect to proxy http://ann:⟦hunter2⟧@proxy:3128", "proxy:3128"),
    # ---------------------------------------------------------------- services
    "openai": message(
        "Error code: 401 - {'error': {'message': 'Incorrect API key provided: ⟦sk-proj-abc123***wxyz⟧. You can find "
        "your API key at https://platform.openai.com/account/api-keys.', 'code': 'invalid_api_key'}}",
        "'code': 'invalid_api_key'",
    ),
    "openai: limit": message(
        "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 10000, Used 9500, max_tokens: 4096",
        "Limit 10000, Used 9500, max_tokens: 4096",
    ),
    "openai: limit of requests": message(
        "Error code: 429 - {'error': {'message': 'Rate limit reached', 'type': 'tokens', 'param': None, 'code': 'x'}}",
        "'type': 'tokens', 'param': None",
    ),
    "anthropic": message(
        "Error code: 401 - {'type': 'error', 'error': {'message': 'invalid x-api-key ⟦sk-ant-api03-AbCd_efgh⟧'}}",
        "'type': 'error'",
    ),
    "azure openai": message("401: api-key: ⟦0123456789abcdef0123456789abcdef⟧", "401"),
    "gemini": message("API key not valid: ⟦AIzaSyA-1234567890abcdefghijklmnopqrstu⟧", "API key not valid"),
    "huggingface": message("Invalid user token: ⟦hf_abcdefghijklmnopqrstuvwx⟧", "Invalid user token"),
    "groq": message("Invalid API Key ⟦gsk_abcdefghijklmnopqrstuvwx⟧", "Invalid API Key"),
    "stripe": message("Invalid API Key provided: ⟦sk_live_51HabcdefghiJKL⟧", "Invalid API Key provided"),
    "stripe: webhook": message("no match for secret ⟦whsec_abcdefghijklmnop⟧", "no match"),
    "slack": message("invalid_auth for ⟦xoxb-12345-67890-AbCdEf⟧ (⟦xapp-1-A0-123-abc⟧)", "invalid_auth for"),
    "slack: hook": message(
        "404 from https://hooks.slack.com/services/⟦T000/B000/XXXX⟧", "hooks.slack.com/services/"
    ),
    "telegram": message(
        "404 for https://api.telegram.org/⟦bot123456789:AAF-abcdefghijklmnopqrstuvwxyz012⟧/x", "404"
    ),
    "github": message("Bad credentials: ⟦ghp_0123456789abcdefABCDEF0123456789abcd⟧", "Bad credentials"),
    "github: fine-grained": message(
        "remote: denied to ⟦github_pat_11ABCDEFG0abcdefghijkl⟧", "remote: denied"
    ),
    "gitlab": message("401 for ⟦glpat-abcdefghij0123456789⟧", "401 for"),
    "git clone": message(
        "Cmd('git') failed due to: exit code(128)\n  cmdline: git clone https://ci:⟦hunter2⟧@git.test/a/b.git\n"
        "  stderr: 'fatal: Authentication failed for 'https://⟦ghs_0123456789abcdef⟧@git.test/a/b.git/''",
        "exit code(128)",
    ),
    "npm": message(
        "E401 //registry.npmjs.org/:_authToken=⟦npm_abcdefghijklmnopqrstuvwxyz0123456789⟧", "E401"
    ),
    "pypi": message("403 Invalid token ⟦pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDA⟧", "403"),
    "sendgrid": message("The key ⟦SG.abcdefghijkl.mnopqrstuvwxyz⟧ is revoked", "is revoked"),
    "vault": message(
        "permission denied for ⟦hvs.CAESIabcdefghijklmno⟧, X-Vault-Token: ⟦hunter2⟧", "permission denied"
    ),
    # ---------------------------------------------------------------- clouds
    "botocore: config": message(
        "Partial credentials: aws_access_key_id=⟦AKIAIOSFODNN7EXAMPLE⟧ aws_secret_access_key="
        "⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY⟧ aws_session_token=⟦FwoGZXIvYXdzEB⟧",
        "Partial credentials",
    ),
    "botocore: header": message(
        "Invalid header: Authorization=AWS4-HMAC-SHA256 Credential=⟦AKIAIOSFODNN7EXAMPLE⟧/20260101/eu/s3/aws4_request, "
        "SignedHeaders=host, Signature=⟦fe5f80f77d5fa3beca038a248ff027d0⟧",
        "Invalid header",
    ),
    "botocore: presigned": message(
        "403 for https://b.s3.amazonaws.com/k?X-Amz-Credential=⟦AKIAIOSFODNN7EXAMPLE⟧&X-Amz-Signature=⟦fe5f80⟧",
        "403 for",
    ),
    "botocore: canonical": message(
        "SignatureDoesNotMatch: 'GET\\n/\\nx-amz-security-token:⟦FwoGZXIvYXdzEB⟧'", "SignatureDoesNotMatch"
    ),
    "azure: storage": message(
        "Connection string malformed: DefaultEndpointsProtocol=https;AccountName=shop;AccountKey="
        "⟦Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq==⟧;EndpointSuffix=core.windows.net",
        "AccountName=shop",
    ),
    "azure: service bus": message(
        "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=⟦a1b2c3d4e5f6=⟧;"
        "EntityPath=q",
        "SharedAccessKeyName=Root",
    ),
    "azure: signature": message(
        "401: SharedAccessSignature sr=sb%3A%2F%2Fx&sig=⟦aBcD%2F1%3D⟧&se=17&skn=Root",
        "401: SharedAccessSignature",
    ),
    "azure: SAS URL": message(
        "Failed: https://x.blob.core.windows.net/c?sv=2024&sig=⟦aBcDeF⟧", "https://x.blob.core.windows.net/c?"
    ),
    "azure: shared key": message("403 with SharedKey ⟦shop:aBcDeF123=⟧", "403 with"),
    "gcp: service account": message(
        'Invalid JWT Signature: {"type": "service_account", "private_key": "'
        + PEM
        + '", "client_email": "a@b.test"}',
        '"type": "service_account"',
    ),
    "a key block alone": message(
        "Could not deserialize key data: -----BEGIN RSA PRIVATE KEY-----\n⟦MIIEpAIBAAKCAQEA7⟧\n⟦0y8s⟧\n-----END",
        "Could not deserialize key data",
    ),
    "gcp: access token": message("401 Request had invalid credentials ⟦ya29.a0AfH6SMBabc-def⟧", "401"),
    "databricks": message("403: Invalid access token. ⟦dapi0123456789abcdef0123456789abcdef⟧", "403"),
    "kubernetes": message("Unauthorized: {'authorization': 'Bearer ⟦eyJhbGciOi⟧'}", "Unauthorized"),
    "environment": message(
        "KeyError in environ({'HOME': '/root', 'DB_PASSWORD': '⟦hunter2⟧', 'STRIPE_API_KEY': '⟦abc⟧'})",
        "'HOME': '/root'",
    ),
    # ---------------------------------------------------------------- queues, mail, directories, tools
    "kafka: config": message(
        "KafkaConfigurationError: {'sasl_mechanism': 'PLAIN', 'sasl_plain_username': 'app', 'sasl_plain_password': "
        "'⟦hunter2⟧'}",
        "'sasl_mechanism': 'PLAIN'",
    ),
    "kafka: jaas": message(
        'sasl.jaas.config=org.apache.PlainLoginModule required username="app" password="⟦hunter2⟧";',
        "required",
    ),
    "confluent": message("%3|FAIL| sasl.password=⟦hunter2⟧: Authentication failed", "Authentication failed"),
    "pika": message("AMQPConnectionError: amqp://app:⟦hunter2⟧@mq:5672/%2f", "mq:5672"),
    "celery": message("Cannot connect to amqp://app:⟦hunter2⟧@mq:5672//: timed out", "timed out"),
    "nats": message(
        "nats: 'Authorization Violation' for nats://⟦s3cr3t⟧@bus:4222", "'Authorization Violation'"
    ),
    "smtplib: bytes": message("(535, b'5.7.8 rejected ⟦hunter2⟧')", "(535,"),
    "smtplib: auth": message("unexpected reply to AUTH PLAIN ⟦AGFubgBodW50ZXIy⟧", "unexpected reply"),
    "ftplib": message("error_perm: PASS ⟦hunter2⟧", "error_perm"),
    "ldap": message(
        "{'desc': 'Constraint violation', 'info': 'userPassword: ⟦hunter2⟧'} bind_password=⟦hunter3⟧",
        "'desc': 'Constraint violation'",
    ),
    "ldap3": message(
        "Connection(user='cn=admin', password='⟦hunter2⟧', authentication='SIMPLE')", "user='cn=admin'"
    ),
    "ldif": message("bad entry: userPassword:: ⟦aHVudGVyMg==⟧", "bad entry"),
    "paramiko": message("ssh ann:⟦hunter2⟧@host.test: Authentication failed", "@host.test"),
    "subprocess: option": message(
        "Command '['mysqldump', '--password=⟦hunter2⟧', '--user=root', 'shop']' returned non-zero exit status 2.",
        "'--user=root'",
    ),
    "subprocess: two words": message(
        "Command 'vault login --token ⟦hunter2⟧' failed; ['x', '--api-key', '⟦hunter3⟧']", "failed"
    ),
    "docker": message(
        'unauthorized: {"auths": {"reg.test": {"auth": "⟦YW5uOmh1bnRlcjI=⟧"}}}', "unauthorized"
    ),
    "pydantic": message(
        "1 validation error for Settings\npassword\n  String should have at least 12 characters "
        "[type=string_too_short, input_value='⟦hunter2⟧', input_type=str]",
        "String should have at least 12 characters",
    ),
    "pydantic: errors": message(
        "[{'type': 'string_too_short', 'loc': ('password',), 'msg': 'too short', 'input': '⟦hunter2⟧'}]",
        "'too short'",
    ),
    "yaml": message("could not parse:\n  password: ⟦hunter2⟧\n  host: db", "host: db"),
    "a sentence": message("login refused: the token '⟦abcd-hunter2⟧' has expired", "has expired"),
    "a long token": message("invalid token ⟦A1b2C3d4E5f6G7h8⟧ for user ann", "for user ann"),
    "cut in a quote": message("failed: {'password': '⟦hunter2 and more⟧", "failed"),
    "sshpass": message("Command 'sshpass -p ⟦hunter2⟧ ssh ann@h' returned 5", "ssh ann@h"),
    "mysql -p": message("Command '['mysql', '-uroot', '-p⟦hunter2⟧', 'shop']' returned 1", "'shop'"),
    "bcrypt": message(
        "no match for ⟦$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW⟧", "no match"
    ),
    "rails": message("SECRET_KEY_BASE=⟦hunter2⟧ is too short", "is too short"),
    "vault: approle": message("login failed: {'role_id': 'r', 'secret_id': '⟦hunter2⟧'}", "login failed"),
    "Passwort": message(
        "Anmeldung fehlgeschlagen: Passwort=⟦hunter2⟧, Kennwort: ⟦hunter3⟧", "fehlgeschlagen"
    ),
    "mailer": message(
        "SMTP_PASS=⟦hunter2⟧ smtppass=⟦hunter3⟧ compass.test:8080 refused", "compass.test:8080"
    ),
    "django": message("password: this field is required.", "this field is required."),
    "a sentence about a password": message(
        "password: must be at least 12 characters", "password: must be at least"
    ),
    "an expired token": message(
        "token: expired, secret: missing, auth: certificate unknown", "auth: certificate unknown"
    ),
    "SQL update": message(
        "[SQL: UPDATE users SET hash = md5('⟦hunter2⟧'), token='⟦hunter3⟧']", "UPDATE users"
    ),
    "set_config": message("SELECT set_config('app.secret','⟦hunter2⟧', true) failed", "failed"),
    "clickhouse: hash": message(
        "password_sha256_hex mismatch, password_hash: ⟦5f4dcc3b5aa765d61d8327deb882cf99⟧", "mismatch"
    ),
    "proxies": message("no route: proxies={'https': 'http://ann:⟦hunter2⟧@proxy:3128'}", "proxy:3128"),
    "BasicAuth": message(
        "bad: BasicAuth(login='ann', password='⟦hunter2⟧', encoding='latin1')", "bad: BasicAuth("
    ),
    "ipv6": message("cannot connect to ann:⟦hunter2⟧@[::1]:5432", "@[::1]:5432"),
    "an @ in a password": message(
        "cannot connect to ann:⟦p@ss:w0rd⟧@db.test:5432/shop", "@db.test:5432/shop"
    ),
    "an empty user": message("cannot connect to :⟦hunter2⟧@cache:6379", "@cache:6379"),
    "git remote": message(
        "git@git.test:team/repo.git: Permission denied (publickey)", "git@git.test:team/repo.git"
    ),
    "a digest": message(
        "no such image: reg.test/app:1.2@sha256:0123abcd", "reg.test/app:1.2@sha256:0123abcd"
    ),
    "a mail address": message(
        "mailto:ann@mail.test bounced, user ann@mail.test unknown", "mailto:ann@mail.test bounced"
    ),
    "a package": message(
        "no version of @scope/name@1.2.3, actions/checkout@v4", "@scope/name@1.2.3, actions/checkout@v4"
    ),
    "jdbc: oracle": message("IO Error: jdbc:oracle:thin:scott/⟦tiger⟧@//db.test:1521/x", "@//db.test:1521/x"),
    "jdbc: sqlserver": message(
        "jdbc:sqlserver://db;user=sa;password=⟦hunter2⟧;encrypt=true refused", ";encrypt=true refused"
    ),
    "redis: user": message("-NOPERM in AUTH app ⟦hunter2⟧", "-NOPERM"),
    "imaplib": message("error: LOGIN ann ⟦hunter2⟧ => NO", "=> NO"),
    "ftplib: dialogue": message("530 Login incorrect. USER ann PASS ⟦hunter2⟧", "530 Login incorrect"),
    "xml attributes": message(
        '<add key="Password" value="⟦hunter2⟧"/><add key="Host" value="db"/>', 'value="db"'
    ),
    "xml property": message('<property name="password">⟦hunter2⟧</property>', "</property>"),
    "mysql: plugin": message("IDENTIFIED WITH mysql_native_password BY '⟦hunter2⟧' failed", "failed"),
    "mysql: set password": message("SET PASSWORD FOR 'ann' = PASSWORD('⟦hunter2⟧') failed", "failed"),
    "SQL like": message("WHERE password LIKE '⟦hunter2⟧' is slow", "is slow"),
    "pgcrypto": message("function crypt('⟦hunter2⟧', unknown) does not exist", "does not exist"),
    "postgres: log": message(
        "CONTEXT:  unnamed portal with parameters: $1 = '⟦ann⟧', $2 = '⟦hunter2⟧'", "CONTEXT"
    ),
    "driver: params": message("query failed: params={'a': ['⟦hunter2⟧', 1]}, timeout", ", timeout"),
    "celery: args": message("Task app.login[1] raised: args=('ann', '⟦hunter2⟧') kwargs", "kwargs"),
    "SecretStr": message("bad: password=SecretStr('⟦hunter2⟧'), host='db'", "host='db'"),
    "an arrow": message("password -> ⟦hunter2⟧, user -> ann", "user -> ann"),
    "a password without a value": message(
        "password=None, token='', secret: null", "password=None, token='', secret: null"
    ),
}
