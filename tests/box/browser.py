# SPDX-License-Identifier: Apache-2.0

"""What users do with the dashboard, in a real browser (headless Chromium).

    browser.py FLOW URL FOLDER [ARGUMENT [USER]]

Runs in the environment of "tools/box up --horizon".  A flow fails with an
AssertionError; screenshots of each panel are in the folder, the last one is
of the failure.  A flow that prints WAITING goes on after a line of input:
meanwhile its caller changes the cloud.
"""

import datetime
import pathlib
import sys
import time

from axe_core_python import selenium as axe
from selenium import webdriver
from selenium.common import exceptions
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PROJECT = '/project/secondary_leases/'
ADMIN = '/admin/secondary_'
#: Seconds for anything that needs no pass of the decision engine.
PATIENCE = 60
#: Seconds within which a list answers, however many leases there are.
QUICK = 2
WAITING = 'waiting'
#: Rules of axe: the success criteria of WCAG 2.1, levels A and AA.
WCAG = {'runOnly': ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}
FORM = '#create_secondary_lease'
#: Fields of the form in their order, as the keyboard reaches them.
FIELDS = ('name', 'flavor', 'number', 'image', 'networks', 'key_name',
          'duration', 'begin', 'preemptible', 'max_rate', 'user_data')


class Browser:
    """A window of Chromium that is logged in."""

    def __init__(self, url: str, folder: str, user: str) -> None:
        self.url, self.folder, self.user = url, pathlib.Path(folder), user
        options = webdriver.ChromeOptions()
        options.binary_location = '/usr/bin/chromium'
        for one in ('--headless=new', '--no-sandbox', '--disable-gpu',
                    '--disable-dev-shm-usage', '--window-size=1280,900'):
            options.add_argument(one)
        self.chrome = webdriver.Chrome(
            options, webdriver.ChromeService('/usr/bin/chromedriver'))
        self.chrome.set_page_load_timeout(120)
        self.open('/auth/login/')
        self.log_in()

    def log_in(self) -> None:
        """Log in on the page that is open."""
        self.one('#id_username').send_keys(self.user)
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

    def wait_text(self, text: str, selector: str = 'body') -> None:
        """Wait until an element has a text."""
        self.wait(lambda: text in self.text(selector),
                  f'"{text}" in {selector}')

    def pause(self) -> None:
        """Let the caller change the cloud."""
        print(WAITING, flush=True)
        sys.stdin.readline()

    def shoot(self, name: str) -> None:
        """Keep a picture of the window."""
        self.chrome.save_screenshot(str(self.folder / f'{name}.png'))

    def press(self, *keys: str) -> None:
        """Press keys at the element that has the focus."""
        webdriver.ActionChains(self.chrome).send_keys(*keys).perform()

    def focus(self) -> str:
        """Return the name, id or text of the element that has the focus."""
        one = self.chrome.switch_to.active_element
        return (one.get_attribute('name') or one.get_attribute('id')
                or one.text or one.tag_name)

    def fill_form(self, name: str, image: str) -> None:
        """Open the form for a new lease, and complete it by the keyboard."""
        self.open(PROJECT)
        self.one('#leases__action_create').send_keys(Keys.ENTER)
        self.wait(lambda: self.focus() == 'name', 'focus in the form')
        self.press(name)
        for field, text in (('flavor', 'secondary:'), ('image', image),
                            ('networks', 'No network')):
            self.reach(field)
            self.press(text)
        self.reach('duration')
        self.press('5m')
        self.press(Keys.TAB)

    def reach(self, field: str) -> None:
        """Move the focus to a field with the tabulator."""
        for _ in range(40):
            self.press(Keys.TAB)
            if self.focus() == field:
                return
        raise AssertionError(f'no way to the field {field}')

    def value(self, field: str) -> str:
        """Return the value of a field that is displayed."""
        return self.one(f'form [name={field}]').get_attribute('value')

    def send_form(self) -> None:
        """Send the form by the keyboard."""
        self.one(f'{FORM} input[type=submit]').send_keys(Keys.ENTER)

    def open_lease(self, name: str) -> None:
        """Open the details of a lease of the list, at their first tab."""
        path = self.wait(
            lambda: self.chrome.find_elements(By.LINK_TEXT, name),
            name)[0].get_attribute('href')
        self.open(f'{path.removeprefix(self.url)}?tab=lease_details__overview')

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
        self.one(button).send_keys(Keys.ENTER)
        self.one('.modal .btn-danger, .modal .btn-primary').send_keys(
            Keys.ENTER)

    def check(self, part: str = '#content_body') -> None:
        """Assert that a part of the page meets WCAG 2.1, level AA."""
        found = axe.Axe().run(self.chrome, part, WCAG)
        assert found['passes'], f'axe has seen nothing in {part}'
        assert not found['violations'], '\n'.join(
            f'{self.chrome.current_url}: {one["id"]}: {one["help"]}: '
            + '; '.join(node['html'][:200] for node in one['nodes'][:5])
            for one in found['violations'])


def run_lease(browser: Browser, name: str) -> None:
    """Quote a lease, create it, see it run, see its timeline, cancel it."""
    browser.fill_form(name, 'worker-idle')
    browser.one('.secondary-offer-start')
    assert 'accepted' in browser.text('.secondary-quote')
    browser.shoot('dashboard-create')
    browser.send_form()
    browser.wait_text(f'Requested lease: {name}')
    browser.wait(lambda: browser.all('#leases'), 'the list')
    browser.open_lease(name)
    browser.wait(lambda: browser.state() == 'Active', 'state Active', 180)
    browser.shoot('dashboard-lease')
    browser.check()
    browser.tab('servers')
    assert 'ACTIVE' in browser.text('#lease_details__servers')
    browser.shoot('dashboard-servers')
    browser.check()
    browser.tab('events')
    assert 'running' in browser.text('#lease_details__events')
    browser.shoot('dashboard-events')
    browser.check()
    browser.tab('timeline')
    assert browser.all('#lease_details__timeline rect.secondary-run')
    browser.shoot('dashboard-timeline')
    browser.check()
    browser.open(f'{PROJECT}timeline/')
    assert name in browser.text('.secondary-timeline')
    browser.shoot('dashboard-timelines')
    browser.check()
    browser.open(PROJECT)
    browser.shoot('dashboard-leases')
    browser.check()
    cancel(browser, name)


def cancel(browser: Browser, name: str) -> None:
    """Cancel a lease of the project."""
    browser.open(PROJECT)
    browser.open_lease(name)
    browser.act('cancel')
    browser.wait_text(name, '#leases')
    browser.open_lease(name)
    browser.wait(lambda: browser.state() == 'Cancelled', 'state Cancelled',
                 120)


def refuse_image(browser: Browser, image: str) -> None:
    """Create a lease with an image that does not fit; read the reason."""
    browser.fill_form('refused', image)
    browser.send_form()
    reason = browser.one(f'{FORM} .alert-danger').text
    assert 'image' in reason and image in reason, reason
    assert browser.value('name') == 'refused'
    assert browser.value('duration') == '5m'
    browser.shoot('dashboard-refused')


def list_many(browser: Browser, path: str) -> None:
    """Open a list of many leases, and the next page."""
    browser.open(path)
    took = browser.open(path)
    rows = len(browser.all('table.datatable tbody tr'))
    assert rows == 20, f'{rows} rows'
    print(f'{path}: first page after {took:.2f} s')
    assert took < QUICK, f'{took:.2f} s'
    browser.chrome.find_element(By.PARTIAL_LINK_TEXT, 'Next').click()
    browser.wait(lambda: 'prev_marker' in browser.chrome.page_source,
                 'the next page')


def watch_violation(browser: Browser, host: str) -> None:
    """See a busy host violate its policy, and the operation that follows."""
    browser.open(f'{ADMIN}capacity/')
    browser.one('.secondary-host')
    browser.pause()
    browser.wait(lambda: any(
        host in text and ('Violated' in text or 'Failing' in text)
        for text in (one.text for one in browser.all('.secondary-host'))),
        f'{host} violates its policy', 180)
    browser.chrome.execute_script('''
        $('.secondary-host').has('h3:contains("' + arguments[0] + '")')[0]
          .scrollIntoView({block: 'center'});''', host)
    browser.shoot('dashboard-capacity')
    browser.check()
    browser.open(f'{ADMIN}operations/?host={host}')
    browser.wait(lambda: browser.chrome.refresh() or any(
        f'{host}' in one.text and 'preempt' in one.text.lower()
        for one in browser.all('.secondary-plan')),
        f'an operation on {host}', 240)
    browser.shoot('dashboard-operations')
    browser.check()
    for name, panel in (('all-leases', 'leases/'),
                        ('all-timelines', 'leases/timeline/'),
                        ('accounting', 'accounting/')):
        browser.open(f'{ADMIN}{panel}')
        assert not browser.all('.messages .alert-danger')
        browser.shoot(f'dashboard-{name}')
        browser.check()
    browser.open(f'{ADMIN}capacity/')
    browser.chrome.delete_all_cookies()
    browser.wait_text('cannot be read again', '.secondary-old')


def see_nothing(browser: Browser, _argument: str) -> None:
    """Look for the administrator's panels as a tenant."""
    browser.open(PROJECT)
    assert ADMIN not in browser.chrome.page_source
    for panel in ('capacity/', 'operations/', 'leases/', 'leases/timeline/',
                  'accounting/'):
        browser.open(f'{ADMIN}{panel}')
        assert not browser.all('.secondary-host, .secondary-plan, table')
        assert 'Traceback' not in browser.chrome.page_source


def use_keyboard(browser: Browser, _argument: str) -> None:
    """Go through form and list with the tabulator; check the form."""
    browser.open(PROJECT)
    browser.one('#leases__action_create').send_keys(Keys.ENTER)
    browser.wait(lambda: browser.focus() == 'name', 'focus in the form')
    browser.check('.modal-content')
    reached = [browser.focus()]
    for _ in range(40):
        browser.press(Keys.TAB)
        reached.append(browser.focus())
        if browser.chrome.switch_to.active_element.get_attribute(
                'type') == 'submit':
            break
    else:
        raise AssertionError(f'no way to the button: {reached}')
    found = [one for one in reached if one in FIELDS]
    assert found == list(FIELDS), reached
    assert 'Get a Quote' in reached, reached
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: not browser.all('.modal'), 'the form is closed')
    browser.one('[name=leases__filter__q_field]').send_keys('State')
    browser.one('[name=leases__filter__q]').send_keys('done', Keys.ENTER)
    browser.wait(lambda: browser.value('leases__filter__q') == 'done',
                 'the filter')
    assert browser.value('leases__filter__q_field') == 'state'
    states = {one.text for one in browser.all('#leases td:nth-child(3)')}
    assert states == {'Done'}, states
    assert 'disabled' in browser.one('#leases__action_delete').get_attribute(
        'class')
    browser.one('[name=leases__filter__q]').send_keys(Keys.TAB)
    browser.reach('object_ids')
    browser.press(Keys.SPACE)
    assert 'disabled' not in browser.one(
        '#leases__action_delete').get_attribute('class')
    browser.check()


def lose_service(browser: Browser, name: str) -> None:
    """Send a form while the lease service is away, and again after it."""
    browser.fill_form(name, 'worker-idle')
    browser.reach('begin')
    browser.press('So that')
    latest = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
    browser.chrome.execute_script(
        "$('#id_deadline').val(arguments[0]).change();",
        f'{latest:%Y-%m-%dT%H:%M}')
    browser.pause()
    browser.send_form()
    browser.wait_text('does not answer', f'{FORM} .alert-danger')
    browser.shoot('dashboard-away')
    for field, value in (('name', name), ('duration', '5m'),
                         ('begin', 'deadline'), ('deadline',
                                                 f'{latest:%Y-%m-%dT%H:%M}')):
        assert browser.value(field) == value, field
    window = browser.chrome.current_window_handle
    browser.chrome.switch_to.new_window('tab')
    for path in (PROJECT, f'{PROJECT}timeline/'):
        browser.open(path)
        assert 'does not answer' in browser.text('.messages'), path
        assert 'Traceback' not in browser.chrome.page_source
    browser.chrome.switch_to.window(window)
    browser.pause()
    browser.send_form()
    browser.wait_text(f'Requested lease: {name}')
    cancel(browser, name)


def lose_right(browser: Browser, lease: str) -> None:
    """See nothing of others, and log in again when the token is revoked."""
    browser.open(PROJECT)
    assert 'No items to display' in browser.text('#leases')
    browser.check()
    browser.open(f'{PROJECT}timeline/')
    assert 'Nothing is planned' in browser.text('#content_body')
    for path in (f'{PROJECT}{lease}/', f'{PROJECT}{lease}/?tab='
                 'lease_details__events'):
        browser.open(path)
        assert browser.chrome.current_url == browser.url + PROJECT
        assert browser.all('.messages .alert-danger')
        assert 'Traceback' not in browser.chrome.page_source
    browser.fill_form('kept', 'worker-idle')
    browser.pause()
    browser.send_form()
    browser.wait_text('session has expired', '.secondary-expired')
    browser.shoot('dashboard-expired')
    assert browser.value('name') == 'kept'
    browser.one('.secondary-ask').send_keys(Keys.ENTER)
    browser.wait_text('session has expired', '.secondary-expired')
    form = browser.chrome.current_window_handle
    browser.chrome.switch_to.new_window('tab')
    browser.open(PROJECT)
    assert '/auth/login' in browser.chrome.current_url
    browser.log_in()
    browser.chrome.switch_to.window(form)
    browser.send_form()
    browser.wait_text('Requested lease: kept')
    cancel(browser, 'kept')


#: Flow and user by name.
FLOWS = {'run-lease': (run_lease, 'demo'),
         'refuse-image': (refuse_image, 'demo'),
         'list-many': (list_many, 'other'),
         'list-all': (list_many, 'admin'),
         'watch-violation': (watch_violation, 'admin'),
         'see-nothing': (see_nothing, 'demo'),
         'use-keyboard': (use_keyboard, 'other'),
         'lose-service': (lose_service, 'demo'),
         'lose-right': (lose_right, '')}


def main(flow: str, url: str, folder: str, argument: str = '',
         user: str = '') -> None:
    """Run a flow."""
    steps, usual = FLOWS[flow]
    browser = Browser(url, folder, user or usual)
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
