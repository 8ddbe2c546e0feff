"""The one error that means "the input was wrong", as opposed to "jgs is wrong"."""


class InputError(ValueError):
    """Input that breaks a rule; its message is one line: the rule, the value, the remedy.

    Args:
      rule: what must hold, e.g. `"every fanout must be a positive int or -1"`.
      value: what was received instead; `str(value)` goes into the message.
      remedy: what the user should do.

    The command line prints the message without a traceback and exits with status 2.
    """

    def __init__(self, rule: str, value: object, remedy: str):
        self.rule, self.value, self.remedy = rule, value, remedy
        super().__init__(f"{rule}; got {value}. {remedy}")
