"""The repository beside this file as a WSGI application: what Mercurial's contrib/hgweb.wsgi does."""

from mercurial.hgweb import hgweb

application = hgweb(b"repository")
