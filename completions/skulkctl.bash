# bash completion for skulkctl. Load it with:  source <(skulkctl completion bash)
_skulkctl() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\t'*}
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
