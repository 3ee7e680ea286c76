"""A Django site of one page."""

import sys

import django.conf
import django.core.wsgi
from django.http import HttpResponse
from django.urls import path

django.conf.settings.configure(
    ALLOWED_HOSTS=["localhost"],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    ROOT_URLCONF="site_of_one_page",
    SECRET_KEY="not a secret",
    WSGI_APPLICATION="site_of_one_page.application",
)


def page(request):
    return HttpResponse("x" * 300, content_type="text/plain")


urlpatterns = [path("page.txt", page)]

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    sys.modules["site_of_one_page"] = sys.modules["__main__"]
    application = django.core.wsgi.get_wsgi_application()
    execute_from_command_line(sys.argv)
else:
    application = django.core.wsgi.get_wsgi_application()
