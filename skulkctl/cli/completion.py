"""Shell completion: Typer finds the candidates, these scripts ask for them.

The scripts are not Typer's, because those neither quote names with blanks nor complete after
`--option=`, and fish would start the program twice. The files under `completions/` are these texts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum

VARIABLE = "_SKULKCTL_COMPLETE"
"""Set by the scripts: Typer answers a shell then, and runs no command."""


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def prepare(environ: Mapping[str, str]) -> None:
    """Get Typer ready to answer, if it is a shell that asks."""
    if VARIABLE not in environ:
        return
    import typer.completion

    # Registers the shells, as `add_completion=True` does, which would add two options to the root.
    typer.completion.get_completion_inspect_parameters()
    # Typer looks for markup in descriptions with rich, if it is there; ours have none.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]


# Bash splits words at =, so an option and its value are two words here.
_BASH = """\
# bash completion for skulkctl. Load it with:  source <(skulkctl completion bash)
_skulkctl() {
    local IFS=$'\\n' word
    local -a words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        [[ $word == "=" ]] || words+=("$word")
    done
    [[ ${COMP_WORDS[COMP_CWORD]} == "=" ]] && words+=("")
    COMPREPLY=()
    while read -r word; do
        [[ $word == *[!A-Za-z0-9._,:=/@+-]* ]] && printf -v word %q "$word"
        [[ -n $word ]] && COMPREPLY+=("$word")
    done < <(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \\
        _SKULKCTL_COMPLETE=complete_bash "${COMP_WORDS[0]}" 2>/dev/null)
}
complete -o default -F _skulkctl skulkctl
"""

# The answer for fish is a candidate, a tab and its description in each line; zsh reads it as well.
_ZSH = """\
#compdef skulkctl
# zsh completion for skulkctl. Load it with:  source <(skulkctl completion zsh)
_skulkctl() {
    local line value
    local -a found
    while IFS= read -r line; do
        value=${line%%$'\\t'*}
        [[ -n $value ]] && found+=("${value//:/\\\\:}:${${line#$value}#$'\\t'}")
    done < <(env _TYPER_COMPLETE_ARGS="${words[1,CURRENT]}" _TYPER_COMPLETE_FISH_ACTION=get-args \\
        _SKULKCTL_COMPLETE=complete_fish "${words[1]}" 2>/dev/null)
    if (( ! $#found )); then
        _files
        return
    fi
    [[ $PREFIX == --*=* ]] && compset -P '*='
    _describe skulkctl found
}
if [[ ${funcstack[1]} == _skulkctl ]]; then
    _skulkctl "$@"
else
    compdef _skulkctl skulkctl
fi
"""

_FISH = """\
# fish completion for skulkctl. Load it with:  skulkctl completion fish | source
function __skulkctl_complete
    set -l current (commandline -ct)
    set -l program (commandline -opc)[1]
    set -l option (string match -r -- '^--[^=]+=' $current)
    set -l found (env _SKULKCTL_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \\
        _TYPER_COMPLETE_ARGS=(commandline -cp) $program 2>/dev/null | string match -r '.+')
    if test (count $found) -eq 0
        __fish_complete_path "$current"
    else
        printf '%s\\n' "$option"$found
    end
end
complete -c skulkctl -f -a '(__skulkctl_complete)'
"""

SCRIPTS = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}
FILES = {Shell.BASH: "skulkctl.bash", Shell.ZSH: "_skulkctl", Shell.FISH: "skulkctl.fish"}
