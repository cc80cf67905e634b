module kubebox/pause

go 1.26.0
