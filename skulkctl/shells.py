"""The completion scripts. They hold no command names: the program itself is asked.

The static files under `completions/` are exactly these texts.
"""

from __future__ import annotations

# Bash splits words at = and :, so the program gets the pieces and joins them again.
BASH = """\
# bash completion for skulkctl. Load it with:  source <(skulkctl completion bash)
_skulkctl() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\\t'*}
        if [[ $line == *[!A-Za-z0-9._,:=/@+-]* ]]; then
            printf -v line %q "$line"
        fi
        COMPREPLY+=("$line")
    done < <("${COMP_WORDS[0]}" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == ":files" ]]; then
        COMPREPLY=()
        compopt -o default 2>/dev/null
    fi
}
complete -F _skulkctl skulkctl
"""

ZSH = """\
#compdef skulkctl
# zsh completion for skulkctl. Load it with:  source <(skulkctl completion zsh)
_skulkctl() {
    local line
    local -a found
    while IFS= read -r line; do
        if [[ $line == ":files" ]]; then
            _files
            return
        fi
        found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done < <("${words[1]}" __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)
    _describe skulkctl found
}
if [[ ${funcstack[1]} == _skulkctl ]]; then
    _skulkctl "$@"
else
    compdef _skulkctl skulkctl
fi
"""

FISH = """\
# fish completion for skulkctl. Load it with:  skulkctl completion fish | source
function __skulkctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    set -l found ($program __complete fish $words "$current" 2>/dev/null)
    if test "$found" = ":files"
        __fish_complete_path "$current"
    else
        printf '%s\\n' $found
    end
end
complete -c skulkctl -f -a '(__skulkctl_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
FILES = {"bash": "skulkctl.bash", "zsh": "_skulkctl", "fish": "skulkctl.fish"}
