# fish completion for skulkctl. Load it with:  skulkctl completion fish | source
function __skulkctl_complete
    set -l current (commandline -ct)
    set -l program (commandline -opc)[1]
    set -l option (string match -r -- '^--[^=]+=' $current)
    set -l found (env _SKULKCTL_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS=(commandline -cp) $program 2>/dev/null | string match -r '.+')
    if test (count $found) -eq 0
        __fish_complete_path "$current"
    else
        printf '%s\n' "$option"$found
    end
end
complete -c skulkctl -f -a '(__skulkctl_complete)'
