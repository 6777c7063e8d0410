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
        printf '%s\n' $found
    end
end
complete -c skulkctl -f -a '(__skulkctl_complete)'
