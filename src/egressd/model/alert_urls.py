"""The URLs that alerts are sent to: services that act by the network alone, not hosts of a LAN."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote

from egressd.model.outside_hosts import UnfitUrl, why_not_host

PLUGINS: Final[Mapping[str, str]] = {
    "apprise": "apprise_api:NotifyAppriseAPI",
    "apprises": "apprise_api:NotifyAppriseAPI",
    "bark": "bark:NotifyBark",
    "barks": "bark:NotifyBark",
    "dingtalk": "dingtalk:NotifyDingTalk",
    "discord": "discord:NotifyDiscord",
    "feishu": "feishu:NotifyFeishu",
    "form": "custom_form:NotifyForm",
    "forms": "custom_form:NotifyForm",
    "gchat": "google_chat:NotifyGoogleChat",
    "gotify": "gotify:NotifyGotify",
    "gotifys": "gotify:NotifyGotify",
    "ifttt": "ifttt:NotifyIFTTT",
    "json": "custom_json:NotifyJSON",
    "jsons": "custom_json:NotifyJSON",
    "lark": "lark:NotifyLark",
    "line": "line:NotifyLine",
    "mailgun": "mailgun:NotifyMailgun",
    "mailto": "email.base:NotifyEmail",
    "mailtos": "email.base:NotifyEmail",
    "mmost": "mattermost:NotifyMattermost",
    "mmosts": "mattermost:NotifyMattermost",
    "ntfy": "ntfy:NotifyNtfy",
    "ntfys": "ntfy:NotifyNtfy",
    "opsgenie": "opsgenie:NotifyOpsgenie",
    "pagerduty": "pagerduty:NotifyPagerDuty",
    "pbul": "pushbullet:NotifyPushBullet",
    "pover": "pushover:NotifyPushover",
    "pushdeer": "pushdeer:NotifyPushDeer",
    "pushdeers": "pushdeer:NotifyPushDeer",
    "pushplus": "pushplus:NotifyPushplus",
    "rocket": "rocketchat:NotifyRocketChat",
    "rockets": "rocketchat:NotifyRocketChat",
    "schan": "serverchan:NotifyServerChan",
    "sendgrid": "sendgrid:NotifySendGrid",
    "signal": "signal_api:NotifySignalAPI",
    "signals": "signal_api:NotifySignalAPI",
    "slack": "slack:NotifySlack",
    "tgram": "telegram:NotifyTelegram",
    "twilio": "twilio:NotifyTwilio",
    "wecombot": "wecombot:NotifyWeComBot",
    "workflows": "workflows:NotifyWorkflows",
    "wxpusher": "wxpusher:NotifyWxPusher",
    "xml": "custom_xml:NotifyXML",
    "xmls": "custom_xml:NotifyXML",
    "zulip": "zulip:NotifyZulip",
}
"""Scheme of a URL -> the module and the class of Apprise's plugin for it."""

_FILES: Final = frozenset({"attach", "attachment", "pgpkey", "pgp", "template"})
"""Parameters that name files, which would be this machine's."""
_VERIFYING: Final = frozenset({"yes", "true", "1", "on"})
"""Values of the parameter ``verify`` with which certificates are verified."""
_URL: Final = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<rest>[!-~]+)")
_WITH_HOST: Final = frozenset(
    name
    for name in PLUGINS
    if f"{name}s" in PLUGINS or (name.endswith("s") and name[:-1] in PLUGINS)
)
"""Schemes of services that an operator may run: the URL names the host."""


def plugin_of(url: str) -> str | None:
    """Return the plugin for a URL; None if its service is none that alerts are sent by."""
    found = _URL.fullmatch(url)
    return None if found is None else PLUGINS.get(found["scheme"])


def why_not_url(url: str) -> UnfitUrl | None:
    """Return the reason why no alert is sent to `url`; None if one may be."""
    found = _URL.fullmatch(url)
    if found is None:
        return UnfitUrl("alert-url-form")
    if found["scheme"] not in PLUGINS:
        return UnfitUrl("alert-url-scheme", {"schemes": tuple(PLUGINS)})
    for name, value in _parameters(found["rest"].partition("?")[2]):
        if name.lstrip("+-: ") in _FILES:
            return UnfitUrl("alert-url-file", {"name": name[:20]})
        if name == "verify" and value.lower() not in _VERIFYING:
            return UnfitUrl("alert-url-unverified")
        # A parameter that has the form of an address is one: that of a mail server, for example.
        if _is_address(host := _host_of(value)) and (reason := why_not_host(host)):
            return reason
    # The first part of all other services is a token.
    return why_not_host(host_of(url)) if found["scheme"] in _WITH_HOST else None


def host_of(url: str) -> str:
    """Return the host that a URL names; empty if its service has a host of its own."""
    found = _URL.fullmatch(url)
    if found is None or found["scheme"] not in _WITH_HOST:
        return ""
    path = re.split(r"[/?]", found["rest"], maxsplit=1)[0]
    return _host_of(path.rpartition("@")[2])


def _parameters(query: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a query's parameters, in lower case, and their values, as Apprise reads
    them (`parse_qsd` of apprise.utils.parse): ``;`` separates them, too, and spaces do not count.
    """
    for part in re.split("[&;]", query):
        name, _, value = part.partition("=")
        yield unquote(name.replace("+", " ")).strip().lower(), unquote(value).strip()
        # A plus sign at the beginning makes it a field of the request's head.
        if name.startswith("+"):
            yield unquote(name[1:].replace("+", " ")).strip().lower(), unquote(value).strip()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return True


def _host_of(authority: str) -> str:
    """Return the host of a text like ``host:443`` or ``[::1]:443``."""
    text = unquote(authority)
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0]
