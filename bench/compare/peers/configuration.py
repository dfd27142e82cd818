"""A configuration of Tessera as both the comparison and its peer read it."""

import tomllib


def add_arguments(parser):
    parser.add_argument("config", help="a configuration of Tessera")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one key, as Tessera's --set (repeatable)")


def load(options):
    """The file's sections, with what --set overrides."""
    try:
        with open(options.config, "rb") as file:
            config = tomllib.load(file)
    except OSError as error:
        raise SystemExit(f"cannot read {options.config}: {error.strerror}") from error
    for text in options.set:
        try:
            changed = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SystemExit(f"--set {text} is not section.key=VALUE with a value of TOML: "
                             f"{error}") from error
        for section, keys in changed.items():
            if not isinstance(keys, dict):
                raise SystemExit(f"--set {text} names no section: it is section.key=VALUE")
            config.setdefault(section, {}).update(keys)
    return config


def words(options):
    """The options that say the same to Tessera and to the peer."""
    return [options.config, *(word for text in options.set for word in ("--set", text))]
