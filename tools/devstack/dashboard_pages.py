# SPDX-License-Identifier: Apache-2.0

"""Pages of Horizon with the panels of this project, read without a browser."""

import http.cookiejar
import re
import urllib.error
import urllib.parse
import urllib.request

from shell import BoxError

_PANEL = re.compile(r'href="[^"]*/((?:project|admin)/secondary_\w+)/"')
#: The first page of each process of Horizon takes long.
_TIMEOUT_S = 180


def open_panels(url: str, user: str, password: str) -> list[str]:
    """Log in and open each panel of this project that the menu has.

    :param url: of the dashboard, without a slash at its end.
    :returns: the panels, such as "project/secondary_leases", sorted.
    :raises BoxError: if the login fails, or a panel does not open.
    """
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(
        http.cookiejar.CookieJar()))

    def page(path: str, data: dict[str, str] | None = None) -> str:
        body = urllib.parse.urlencode(data).encode() if data else None
        try:
            with opener.open(urllib.request.Request(
                    f'{url}{path}', body, {'Referer': f'{url}{path}'}),
                    timeout=_TIMEOUT_S) as answer:
                return str(answer.read().decode())
        except (OSError, urllib.error.HTTPError) as problem:
            raise BoxError(f'{url}{path}: {problem}; the log of Horizon is '
                           '/var/log/apache2/horizon_error.log') from problem

    token = re.search('name="csrfmiddlewaretoken" value="([^"]+)"',
                      page('/auth/login/'))
    if not token:
        raise BoxError(f'{url}/auth/login/ has no form')
    home = page('/auth/login/', {
        'csrfmiddlewaretoken': token[1], 'username': user,
        'password': password, 'region': 'default'})
    if 'name="password"' in home:
        raise BoxError(f'{url} refuses the login of {user}')
    panels = sorted(set(_PANEL.findall(home)))
    for panel in panels:
        if 'secondary' not in page(f'/{panel}/').lower():
            raise BoxError(f'{url}/{panel}/ is no panel of this project')
    return panels
