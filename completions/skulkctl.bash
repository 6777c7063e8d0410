# bash completion for skulkctl. Load it with:  source <(skulkctl completion bash)
_skulkctl() {
    local IFS=$'\n' word
    local -a words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        [[ $word == "=" ]] || words+=("$word")
    done
    [[ ${COMP_WORDS[COMP_CWORD]} == "=" ]] && words+=("")
    COMPREPLY=()
    while read -r word; do
        [[ $word == *[!A-Za-z0-9._,:=/@+-]* ]] && printf -v word %q "$word"
        [[ -n $word ]] && COMPREPLY+=("$word")
    done < <(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \
        _SKULKCTL_COMPLETE=complete_bash "${COMP_WORDS[0]}" 2>/dev/null)
}
complete -o default -F _skulkctl skulkctl
