# fish completion for npudiff. Made by tools/make_shell_files from the program's option tables.

function __npudiff_ask
    set -l words (commandline -opc)
    npudiff --complete $argv[1] $words[2..-1] 2>/dev/null
end

function __npudiff_needs_command
    test (count (commandline -opc)) -eq 1
end

function __npudiff_is
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test "$words[2]" = $argv[1]
end

function __npudiff_needs_action
    set -l words (commandline -opc)
    test (count $words) -eq 2; and test "$words[2]" = $argv[1]
end

complete -c npudiff -f
complete -c npudiff -n __npudiff_needs_command -a help -d 'explain a command or an error'
complete -c npudiff -n '__npudiff_is help' -a 'errors @COMMANDS@'
@TABLE@
