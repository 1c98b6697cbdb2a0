# SPDX-License-Identifier: Apache-2.0

"""What users do with the dashboard, in a real browser (headless Chromium).

    browser.py FLOW URL FOLDER [ARGUMENT]

Runs in the environment of "tools/box up --horizon".  A flow fails with an
AssertionError; screenshots of each panel are in the folder, the last one is
of the failure.
"""

import pathlib
import sys
import time

from selenium import webdriver
from selenium.common import exceptions
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PROJECT = '/project/secondary_leases/'
ADMIN = '/admin/secondary_'
#: Seconds for anything that needs no pass of the decision engine.
PATIENCE = 60


class Browser:
    """A window of Chromium that is logged in."""

    def __init__(self, url: str, folder: str, user: str) -> None:
        self.url, self.folder = url, pathlib.Path(folder)
        options = webdriver.ChromeOptions()
        options.binary_location = '/usr/bin/chromium'
        for one in ('--headless=new', '--no-sandbox', '--disable-gpu',
                    '--disable-dev-shm-usage', '--window-size=1280,900'):
            options.add_argument(one)
        self.chrome = webdriver.Chrome(
            options, webdriver.ChromeService('/usr/bin/chromedriver'))
        self.chrome.set_page_load_timeout(120)
        self.open('/auth/login/')
        self.one('#id_username').send_keys(user)
        self.one('#id_password').send_keys('secret', Keys.ENTER)
        self.wait(lambda: '/auth/login' not in self.chrome.current_url,
                  'the login')

    def open(self, path: str) -> float:
        """Open a page; return the seconds until it was loaded."""
        began = time.monotonic()
        self.chrome.get(self.url + path)
        return time.monotonic() - began

    def all(self, selector: str) -> list:
        """Return the elements of a selector that are displayed."""
        return [one for one in self.chrome.find_elements(
            By.CSS_SELECTOR, selector) if one.is_displayed()]

    def one(self, selector: str):
        """Return the first element of a selector, once it is displayed."""
        return self.wait(lambda: self.all(selector), selector)[0]

    def text(self, selector: str = 'body') -> str:
        """Return the displayed text of an element; '' if there is none."""
        try:
            return ' '.join(one.text for one in self.all(selector))
        except exceptions.StaleElementReferenceException:
            return ''

    def wait(self, predicate, what: str, patience: float = PATIENCE):
        """Return the first true value of a predicate."""
        deadline = time.monotonic() + patience
        while True:
            try:
                if value := predicate():
                    return value
            except exceptions.StaleElementReferenceException:
                pass
            assert time.monotonic() < deadline, (
                f'not within {patience:g} s: {what}')
            time.sleep(0.5)

    def shoot(self, name: str) -> None:
        """Keep a picture of the window."""
        self.chrome.save_screenshot(str(self.folder / f'{name}.png'))

    def choose(self, field: str, text: str) -> None:
        """Choose an option by its beginning, in a list that Horizon draws."""
        assert self.chrome.execute_script('''
            var select = $('#id_' + arguments[0]), text = arguments[1];
            var option = select.find('option').filter(function () {
              return $(this).text().trim().indexOf(text) === 0; });
            select.val(select.prop('multiple') ? [option.val()]
                                               : option.val()).change();
            return option.length;''', field, text), f'{field}: {text}'

    def fill_form(self, name: str, image: str) -> None:
        """Open the form for a new lease, and complete it."""
        self.open(PROJECT)
        self.one('#leases__action_create').send_keys(Keys.ENTER)
        self.one('#id_name').send_keys(name)
        self.choose('flavor', 'secondary:')
        self.choose('image', image)
        self.choose('networks', 'No network')
        self.one('#id_duration').send_keys(Keys.CONTROL, 'a')
        self.one('#id_duration').send_keys('5m', Keys.TAB)

    def send_form(self) -> None:
        """Send the form by the keyboard."""
        self.one('#create_secondary_lease input[type=submit]').send_keys(
            Keys.ENTER)

    def state(self) -> str:
        """Return the state of the lease whose details are open, anew."""
        self.chrome.refresh()
        return self.text('#secondary_lease_state')

    def tab(self, name: str) -> None:
        """Open a tab of the details by the keyboard."""
        self.one(f'a[data-target="#lease_details__{name}"]').send_keys(
            Keys.ENTER)
        self.wait(lambda: self.text(f'#lease_details__{name}').strip()
                  and 'Loading' not in self.text(f'#lease_details__{name}'),
                  f'the tab {name}')

    def act(self, action: str) -> None:
        """Order an action in the menu of the details, and confirm it."""
        button = f'button[name=action][value*="__{action}__"]'
        if not self.all(button):
            self.one('.detail-actions .dropdown-toggle').send_keys(
                Keys.ENTER)
        self.one(button).click()
        self.one('.modal .btn-danger, .modal .btn-primary').click()


def run_lease(browser: Browser, name: str) -> None:
    """Quote a lease, create it, see it run, see its timeline, cancel it."""
    browser.open(PROJECT)
    browser.fill_form(name, 'worker-idle')
    browser.one('.secondary-offer-start')
    assert 'accepted' in browser.text('.secondary-quote')
    browser.shoot('dashboard-create')
    browser.send_form()
    browser.wait(lambda: f'Requested lease: {name}' in browser.text(),
                 'the message of success')
    browser.wait(lambda: browser.all('#leases'), 'the list')
    browser.chrome.find_element(By.LINK_TEXT, name).click()
    browser.wait(lambda: browser.state() == 'Active', 'state Active', 180)
    browser.shoot('dashboard-lease')
    browser.tab('servers')
    assert 'ACTIVE' in browser.text('#lease_details__servers')
    browser.tab('events')
    assert 'running' in browser.text('#lease_details__events')
    browser.tab('timeline')
    assert browser.all('#lease_details__timeline rect.secondary-run')
    browser.shoot('dashboard-timeline')
    browser.open(f'{PROJECT}timeline/')
    assert name in browser.text('.secondary-timeline')
    browser.open(PROJECT)
    browser.shoot('dashboard-leases')
    browser.chrome.find_element(By.LINK_TEXT, name).click()
    browser.act('cancel')
    browser.wait(lambda: name in browser.text('#leases'), 'the list')
    browser.chrome.find_element(By.LINK_TEXT, name).click()
    browser.wait(lambda: browser.state() == 'Cancelled', 'state Cancelled',
                 120)


def refuse_image(browser: Browser, image: str) -> None:
    """Create a lease with an image that does not fit; read the reason."""
    browser.fill_form('refused', image)
    browser.send_form()
    browser.wait(lambda: browser.all('#create_secondary_lease .alert-danger'),
                 'the reason')
    reason = browser.text('#create_secondary_lease .alert-danger')
    assert 'image' in reason and image in reason, reason
    kept = browser.one('#id_name').get_attribute('value')
    assert kept == 'refused', kept
    browser.shoot('dashboard-refused')


def list_many(browser: Browser, number: str) -> None:
    """Open the list of a project with many leases, and the next page."""
    browser.open(PROJECT)
    took = browser.open(PROJECT)
    rows = len(browser.all('#leases tbody tr'))
    assert rows == 20, f'{rows} rows'
    print(f'{number} leases: first page after {took:.2f} s')
    assert took < 2, f'{took:.2f} s'
    browser.chrome.find_element(By.PARTIAL_LINK_TEXT, 'Next').click()
    browser.wait(lambda: 'prev_marker' in browser.chrome.page_source,
                 'the next page')


def watch_violation(browser: Browser, host: str) -> None:
    """See a busy host violate its policy, and the operation that follows."""
    browser.open(f'{ADMIN}capacity/')
    browser.wait(lambda: any(
        host in text and ('Violated' in text or 'Failing' in text)
        for text in (one.text for one in browser.all('.secondary-host'))),
        f'{host} violates its policy', 180)
    browser.shoot('dashboard-capacity')
    browser.open(f'{ADMIN}operations/?host={host}')
    browser.wait(lambda: browser.chrome.refresh() or any(
        f'{host}' in one.text and 'preempt' in one.text.lower()
        for one in browser.all('.secondary-plan')),
        f'an operation on {host}', 240)
    browser.shoot('dashboard-operations')
    for name, panel in (('all-leases', 'leases'),
                        ('accounting', 'accounting')):
        browser.open(f'{ADMIN}{panel}/')
        assert not browser.all('.messages .alert-danger')
        browser.shoot(f'dashboard-{name}')


def see_nothing(browser: Browser, _argument: str) -> None:
    """Look for the administrator's panels as a tenant."""
    browser.open(PROJECT)
    assert ADMIN not in browser.chrome.page_source
    for panel in ('capacity', 'operations', 'leases', 'accounting'):
        browser.open(f'{ADMIN}{panel}/')
        assert not browser.all('.secondary-host, .secondary-plan, table')
        assert 'Traceback' not in browser.chrome.page_source


#: Flow and user by name.
FLOWS = {'run-lease': (run_lease, 'demo'),
         'refuse-image': (refuse_image, 'demo'),
         'list-many': (list_many, 'other'),
         'watch-violation': (watch_violation, 'admin'),
         'see-nothing': (see_nothing, 'demo')}


def main(flow: str, url: str, folder: str, argument: str = '') -> None:
    """Run a flow."""
    steps, user = FLOWS[flow]
    browser = Browser(url, folder, user)
    try:
        steps(browser, argument)
    except BaseException:
        browser.shoot(f'failure-{flow}')
        print(browser.chrome.current_url, browser.text()[:2000])
        raise
    finally:
        browser.chrome.quit()


if __name__ == '__main__':
    main(*sys.argv[1:])
