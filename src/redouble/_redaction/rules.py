"""The rules that find secrets in a text: names with values, tokens of known shape, messages of databases.

Rule 1: when in doubt, hide. What a rule hides is the last group of its pattern, or else the whole match.
Rule 2: every pattern takes linear time: repetitions are possessive, and what a failed match has read is
        bounded or is not read again by the next one.
"""

# ruff: noqa: E501  the parts of a pattern stay on one line

from __future__ import annotations

import re
from typing import NamedTuple


class Rule(NamedTuple):
    """What to hide: a pattern, and signs in lower case of which every text it matches contains one."""

    signs: tuple[str, ...]
    pattern: re.Pattern[str]


class AddedRules:
    """The rules that the program has added, in a tuple that is replaced as a whole: readers need no lock."""

    __slots__ = ("rules",)

    def __init__(self) -> None:
        self.rules: tuple[Rule, ...] = ()


added = AddedRules()


def rule(signs: str, pattern: str, flags: re.RegexFlag = re.IGNORECASE) -> Rule:
    """Return a rule; the signs are separated by blanks."""
    return Rule(tuple(signs.split()), re.compile(pattern, flags | re.VERBOSE))


# ------------------------------------------------------------------------------ names with values

# The names of secrets. Any prefix may precede them: DB_PASSWORD, clientSecret, X-Auth-Token.
_NAME = r"""
(?: pass (?: w(?:or)?ds? | wort | [-_. ]? (?: phrase | code | key ) s? )
  | (?: (?<! [a-z] ) | db | smtp | imap | mail | ftp | ldap | http | user | root | admin | bind | login | require ) pass
  | (?: pwd | (?: bind | root | admin | user | db ) [-_.]? pw | masterauth | secret | credential | cred | jwt ) s?
  | kennwort | contrase[nñ]a | senha | mot [ ] de [ ] passe | wachtwoord
  | tokens? (?! ['"]? \]? \s*+ [:=] \s*+ \d [\d,.]*+ (?: [\s,;)\]}&'"] | $ ) )
            (?! (?: (?<= expected [ ] token ) | (?<= expected [ ] tokens ) ) \s++ (?! [:=] | (?= \S{16} ) \S*\d ) )
  | (?: api | app | application | access | secret | private | account | shared | encryption | signing | signature
      | master | auth | subscription | licen[cs]e | functions? | service | storage | consumer | webhook | ssh | hmac
      | aes | rsa | session | client | admin | deploy ) [-_. ]? keys?
  | session [-_.]? id | signature | client [-_.]? assertion | code [-_.]? verifier | saml [-_.]? response
  | (?<! [a-z] ) (?: sig (?! \s*+ [:=] \s*+ (?: (?-i: SIG [A-Z]{2,7}+ ) | \d{1,2}+ ) (?! [\w.%+/=-] ) )
                   | otp (?! \s*+ [:=] \s*+ (?: \d{1,3}+ | (?-i: [A-Z]?+ [a-z]++ ) ) (?: [\s,;.)] | $ ) )
                   | auth (?= \\*+ ['"\]] | \s*+ = ) ) )
(?: [-_.]? (?: hash (?:ed)? | value | text | string | plain | raw | b64 | base64 | base | hex | new | old | current | data
      | confirm (?:ation)? | id | v? [0-9]++ ) )*+
"""
_NAME_SIGNS = "pass pwd pw auth secret cred jwt token key session sig assertion verifier saml otp wort contrase senha woord"

_QUOTED = r"""
(?: [bru]{1,2} )?
(?: (?P<q> ["'`] ) ( (?: \\. | (?P=q){2} (?= \w ) | (?! (?P=q) (?! \w ) ) . )*+ )
  | (?P<e> \\++ ["'] ) ( (?: (?! (?<! \\ ) (?P=e) ) . )*+ ) )
"""
_QUOTED_AGAIN = re.sub(r"(?<=P[<=])[qe]", r"\g<0>2", _QUOTED)  # no two groups may have one name

# What may stand between a name and its value: for 'bob', is:, {"value":
_OWNER = r"""
[ ] (?: for | of ) [ ] (?: (?: user (?:name)? | account | role | client ) [ ] )?
\\*+ ["'`]? [\w.@+-]{1,60}+ \\*+ ["'`]?
(?= \s*+ [:=] \s*+ (?: \\*+ ["'`] | (?! \S*:// | \d{4}-\d\d-\d\d ) (?= \S*[a-z] ) (?= \S*\d ) [^\s()]{8} ) )
"""
_NESTED = r"""
(?: \{ [^{}]{0,200}? \\*+ ["'] (?: val (?:ue)? s? | current | raw | plain (?:text)? | data | hash | base64 | b64 ) \\*+ ["']
        \s*+ [:=] \s*+
  | value \s*+ : \s++ )
"""

# What stands in the place of a value and is none: null, or the words of a sentence ("password: must be longer").
_NO_VALUE = r"""
(?! (?: yes | no | true | false | none | null | nil | undefined | required | missing | invalid | incorrect | expired
      | revoked | empty ) (?= [\s;&)\]}'"] | [,.] (?: \s | $ ) | $ )
  | (?: this | that | the | an? | it | is | was | are | has | have | must | should | may | can | cannot | does | did | do
      | not | too | please | expected | unexpected | field | value | input | string | at | in ) [ ] [a-z]
  | \{ \s*+ \\*+ ["'] )
"""
_IN_BRACKETS = r"""(?: [\[(] | \{ (?! \s*+ \\*+ ["'] ) ) ( [^\])}]++ )"""
_ODBC_VALUE = r"""( [^\s;'"=] [^;'"\r\n=]{0,200}+ (?= ; ) )"""
_WORD_VALUE = r"""
(?P<word> (?: [^\s,;&'"<\\] | , (?! [\s'"] | [\w.-]++ = | $ ) | & (?! [\w.%-]++ = ) | ['"] (?= \w ) | < (?! / )
            | \\ (?! ['"] ) )++ )
"""
_CALL = r"""( [\w.]{1,60}+ \( [^)\n]*+ )"""  # SecretStr('...')
# Long words that are no tokens: a time, and the path of a resource.
_TIME = r"\d{4}-\d\d-\d\d [T ] \d\d:"
_PATH = r"""(?-i: (?: projects | secrets | [a-z0-9._-]++ (?= (?: / [a-z0-9._-]++ )++ [.,:;!?)'"]*+ (?: \s | \Z ) ) ) / )"""
_AFTER_NAME = rf"""
(?: [ ] (?: provided | given | supplied | received | used | (?: is | was ) (?= \s*+ [:=] ) ) | {_OWNER} )?
(?: (?: %22 | \\*+ ["'`] )? \]?
    (?: \s*+ (?: [=-]> | := | =++ | ::? (?! // ) | %3[ad] (?: %22 )? ) \s*+ {_NESTED}?+
        (?: {_QUOTED} | {_IN_BRACKETS} | {_CALL} | {_NO_VALUE} (?: {_ODBC_VALUE} | {_WORD_VALUE} ) )
      | (?<= ["'] ) , \s*+ (?! \\*+ ["'] [\w-]{{1,60}}+ \\*+ ["'] \s*+ : ) {_QUOTED_AGAIN}
      | \s*+ > ( [^<>]{{1,1000}}+ ) </
      | \s++ value \s*+ = \s*+ ["']? ( [^\s"'<>]++ ) )
  | \( \s*+ (?: value \s*+ = \s*+ )? \\*+ ["'] ( [^"']++ )
  | \s++ (?: (?: i?like | is | was ) \s++ )? (?P<q3> \\*+ ["'`] ) ( (?: (?! (?P=q3) ) . ){{4,}}+ )
  | \s++ (?! {_TIME} | {_PATH} ) (?= \S{{16}} ) (?= \S*\d ) (?P<token> \S++ ) )
"""


def names_rule(signs: str, names: str) -> Rule:
    """Return the rule that hides the values of names, which are a part of a pattern."""
    flags = re.VERBOSE | re.IGNORECASE | re.DOTALL
    return Rule(tuple(signs.split()), re.compile(rf"(?: {names} ) {_AFTER_NAME}", flags))


NAMES = names_rule(_NAME_SIGNS, _NAME)

# ---------------------------------------------------------------------- tokens, keys and messages

_KNOWN = r"""
(?<! [A-Za-z0-9] ) (?:
    (?: sk | rk | pk ) - [\w*-]{6,}+ | (?: sk | rk | whsec | sess ) _ [\w*]{8,}+       # OpenAI, Anthropic, Stripe
  | xox [a-z] (?: [.-] [\w*-]++ )++ | xapp - [\w-]{8,}+                                # Slack
  | gh [opusr] _ [A-Za-z0-9*]{10,}+ | github_pat_ \w{10,}+ | gl (?: pat | cbt | ptt | rt ) - [\w-]{10,}+
  | (?: AKIA | ASIA ) [A-Z0-9]{12,}+ (?: / [\w/-]*+ )?                                 # AWS
  | eyJ [\w-]{8,}+ (?: \. [\w-]*+ )*+                                                  # JSON Web Tokens
  | AIza [\w-]{20,}+ | ya29 \. [\w.-]++ | GOCSPX - [\w-]++ | 1// [\w-]{20,}+           # Google
  | npm_ [A-Za-z0-9]{20,}+ | pypi - [\w-]{16,}+ | hf_ [A-Za-z0-9]{16,}+ | gsk_ [A-Za-z0-9]{16,}+
  | xai - [\w-]{16,}+ | r8_ [\w]{16,}+ | pplx - [\w-]{16,}+ | nvapi - [\w-]{16,}+
  | SG \. [\w-]{8,}+ \. [\w-]++ | key - [0-9a-f]{32} | dop_v1_ [0-9a-f]{16,}+ | dapi [0-9a-f]{32}
  | hv [sbr] \. [\w-]{16,}+ | glsa_ \w{16,}+           # Vault, Grafana
  | shp (?: at | ca | pa | ss ) _ [0-9a-fA-F]{16,}+ | sq0 [a-z]{3} - [\w-]{16,}+ | lin_api_ \w{16,}+
  | AGE-SECRET-KEY-1 [A-Z0-9]++ | PMAK - [\w-]{16,}+
  | \$ (?: 2[abxy] | argon2\w*+ | scrypt | [156] ) \$ [\w./+=,$-]{10,}+                # hashes of passwords
  | (?: bot )? [0-9]{8,10}+ : AA [\w-]{30,}+                                           # Telegram
)
| (?<= hooks\.slack\.com/services/ ) [\w/-]++ | (?<= /api/webhooks/ ) [\w/-]++
"""

_KEY_BLOCK = r"-----BEGIN[A-Z0-9 ]{0,40}? PRIVATE[ ]KEY (?:[ ]BLOCK)? ----- (.*?) (?: -----END | \Z )"

RULES: tuple[Rule, ...] = (
    rule("-----begin", _KEY_BLOCK, re.DOTALL),
    rule(
        "sk- rk- pk- sk_ rk_ whsec sess_ xox xapp ghp_ gho_ ghu_ ghs_ ghr_ github_pat glpat glcbt glptt glrt glsa_ akia "
        "asia eyj aiza ya29 gocspx 1// npm_ pypi- hf_ gsk_ xai- r8_ pplx nvapi sg. key- dop_ dapi hvs. hvb. hvr. shp "
        "sq0 lin_ age- pmak- $2 $argon2 $scrypt $1$ $5$ $6$ :aa hooks. webhooks",
        _KNOWN,
        re.RegexFlag(0),
    ),
    # Arguments of commands: curl -u user:password, mysql --password hunter2.
    rule(
        "-",
        rf"(?<! [\w.-] ) --? [\w.-]{{0,60}}? (?: {_NAME} ) (?: \s++ | \\*+ ['\"] , \s*+ \\*+ ['\"] ) (?! - ) ( [^\s'\"]++ )",
    ),
    rule(
        "-",
        r"(?<= [\s'\"(] ) (?: -u | --user | --proxy-user ) (?: ['\"] , \s*+ ['\"] | [\s=]++ ['\"]? ) ( [^\s'\":]*+ : [^\s'\"]++ )",
    ),
    rule(
        "-p",
        r"\b (?: sshpass | mysql\w*+ | mariadb\w*+ | docker | podman ) \b [^\n]{0,200}? [\s'\"] -p [ ]? (?! assword ) ['\"]? ( [^\s'\"]++ )",
    ),
    rule(
        "-cli",
        r"\b (?: redis | valkey | keydb ) -cli \b [^\n]{0,200}? [\s'\"] -a (?: \s++ ['\"]? | ['\"] , \s*+ ['\"] ) ( [^\s'\"]++ )",
    ),
    # SQL: parameters, values, literals of a quoted statement; rows and values that a server quotes.
    rule("[parameters:", r"\[parameters: [ ]*+ ( [^\n]* (?= \] ) | [^\n]++ )"),
    rule("values", r"\b VALUES \s*+ \( ( [^\n]++ )"),
    rule(
        "identified",
        r"\b IDENTIFIED \s++ (?: WITH \s++ \S++ \s++ )? BY \s++ (?: PASSWORD \s++ )? \\*+ ['\"] ( [^'\"]++ )",
    ),
    rule("crypt( md5( sha", r"\b (?: \w{0,20} crypt | md5 | sha [0-9]{1,3} ) \( \s*+ \\*+ ' ( [^']++ )"),
    rule("$", r"\$ [0-9]++ [ ]? = [ ]? \\*+ ' ( [^']++ )"),
    rule(
        "param args bind",
        r"\b (?: params? | parameters | args | binds? | bindings | bind [ ] variables ) ['\"]? \s*+ [:=] \s*+ "
        r"[\[({] ( (?: [^\[\](){}\n] | [\[({] [^\[\](){}\n]*+ [\])}] )++ )",
    ),
    rule("near", r"\b near [ ] \\*+ ' ( [^\n]++ )"),
    rule(
        "row",
        r"\b (?: failing [ ] row [ ] contains | row [ ] = | proposed [ ] for [ ] insertion ) [ ]? \( ( [^\n]++ )",
    ),
    rule("key", r"\b Key [ ] \( [^)\n]{1,200}+ \) = \( ( [^)\n]++ )"),
    rule("duplicate", r"\b Duplicate [ ] entry [ ] \\*+ ' ( (?: (?! \\*+ '[ ]for[ ]key ) [^\n] )++ )"),
    rule("key value", r"\b duplicate [ ] key [ ] value [ ] is [ ] \( ( [^)\n]++ )"),
    rule("incorrect", r"\b incorrect [ ] \w++ [ ] value: [ ] \\*+ ' ( (?: (?! \\*+ '[ ]for[ ] ) [^\n] )++ )"),
    rule(
        "input",
        r"\b invalid [ ] input [ ] (?: syntax | value ) [ ] for [ ] [\w ]{1,50}+ : [ ] \\*+ \" ( [^\"\n]++ )",
    ),
    rule("argument", r"\b query [ ] argument [ ] \$ [0-9]++ : [ ] ( (?: (?! [ ] \( ) [^\n] )++ )"),
    rule("missing", r"\b missing [ ] \"=\" [ ] after [ ] \\*+ \" ( [^\"\n]++ )"),
    # Half of a password with a slash or an @ in it becomes a host or a port.
    rule(
        "port name nodename",
        r"\b (?: nonnumeric [ ] port: | cast [ ] to [ ] integer [ ] value [ ] as | invalid [ ] port (?:[ ]number)? :? ) "
        r"\s*+ \\*+ ['\"] ( [^'\"\n]++ )",
    ),
    rule(
        "@",
        r"\b (?: host[ ]?name | host | nodename | address | base [ ] 10: ) \s*+ \\*+ ['\"] ( [^'\"@\n]++ (?= @ ) )",
    ),
    # Redis and mail: commands with their arguments.
    rule("beginning with:", r"\b with [ ] args [ ] beginning [ ] with: [ ]* ( [^\n]++ )"),
    rule(
        "command #",
        r"\b Command [ ] \# [ ] [0-9]++ [ ] \( \S++ [ ] ( (?: (?! \) [ ] of [ ] pipeline ) . )++ )",
        re.DOTALL,
    ),
    rule(
        "auth",
        r"(?-i: \b AUTH ) \s++ (?! (?-i: [a-z] ) [a-z]*+ (?: [\s.,:;] | $ ) | < ) "
        r"(?: (?: PLAIN | LOGIN | CRAM-MD5 | XOAUTH2 | OAUTHBEARER ) \s++ )? ( [^\s'\"()]++ (?: [ ] (?! of\b ) [^\s'\"()]++ )? )",
    ),
    rule("auth", r"(?-i: \b AUTH ) \s++ [\w.-]++ \s++ (?= \S*[0-9] ) ( [^\s'\"()]++ )"),
    rule("login", r"(?-i: \b LOGIN ) \s++ \S++ \s++ (?= \S*[0-9\"] ) ( \S++ )"),
    rule(
        "pass",
        r"(?: ^ | ['\"(:] [ ]? | \b USER [ ] \S{1,100} [ ] ) (?-i: PASS ) [ ] ( [^\s'\"]++ )",
        re.IGNORECASE | re.MULTILINE,
    ),
    rule("auth", r"(?: basic | digest | http | proxy ) _? (?: basic | digest )? _? auth \( ( [^)\n]++ )"),
    rule("requirepass", r"\b requirepass \s++ ( [^\s'\"]++ )"),
    # Input that a validator quotes (pydantic).
    rule("input_value=", r"\b input_value= ( (?: (?! ,[ ]input_type= ) [^\n] )++ )"),
    rule(
        "input", r"(?<= ['\"]input ) ['\"] : \s*+ (?P<q> ['\"] ) ( (?: \\. | (?! (?P=q) ) . )++ )", re.DOTALL
    ),
    # Schemes of the header Authorization without the header.
    rule("apikey sharedkey", r"\b (?-i: ApiKey | SharedKey (?:Lite)? ) \s++ (?P<word> [^\s'\",;]++ )"),
)

# String literals in these are hidden: the statement of an error of SQLAlchemy or PostgreSQL.
STATEMENT = re.compile(r"(?: \b LINE [ ] [0-9]++: | \[SQL: ) [^\n]*+", re.VERBOSE)
